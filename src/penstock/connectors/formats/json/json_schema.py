"""Derives row types from JSON schemas, as far as Flink supports them."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.errors import InvalidJobError

_FORMATS = {
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "date-time": Types.SQL_TIMESTAMP(),
}
_UNIONS = ("allOf", "anyOf", "not", "extends", "disallow")


def type_of_json_schema(text: str) -> RowTypeInfo:
    """Return the row type of a JSON schema of an object; all numbers are BIG_DEC."""
    try:
        schema = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        message = f"the JSON schema is not JSON: {error}"
        raise InvalidJobError(message) from None
    found = _type_of(schema, "<root>", schema)
    if not isinstance(found, RowTypeInfo):
        _fail("a JSON schema of rows is one of an object")
    return found


def _type_of(node: Any, where: str, root: Any) -> TypeInformation:
    if not isinstance(node, dict):
        _fail(f"no type could be found in node {where}")
    if any(name in node for name in _UNIONS):
        _fail(f"{', '.join(_UNIONS)} are not supported, as in node {where}")
    if "$ref" in node and "type" not in node:
        return _type_of(_referenced(node["$ref"], root, where), where, root)
    declared = node.get("type", [])
    names = [declared] if isinstance(declared, str) else list(declared)
    types = [_of_name(name, node, where, root) for name in names if name != "null"]
    options = [option for option in node.get("oneOf", []) if option != {"type": "null"}]
    types += [_type_of(option, f"{where}/oneOf", root) for option in options]
    if len(set(types)) != 1:
        _fail(f"one type besides null is needed in node {where}; got {types or 'none'}")
    return types[0]


def _of_name(name: str, node: dict[str, Any], where: str, root: Any) -> TypeInformation:
    match name:
        case "boolean":
            return Types.BOOLEAN()
        case "number" | "integer":
            return Types.BIG_DEC()
        case "string" if node.get("contentEncoding") == "base64":
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        case "string":
            return _FORMATS.get(node.get("format", ""), Types.STRING())
        case "object":
            fields = node.get("properties", {})
            types = [_type_of(inner, f"{where}/{name}", root) for name, inner in fields.items()]
            return Types.ROW_NAMED(list(fields), types)
        case "array" if isinstance(node.get("items"), dict):
            return Types.OBJECT_ARRAY(_type_of(node["items"], f"{where}/items", root))
    return _fail(f"unsupported type {name!r} in node {where}")


def _fail(reason: str) -> NoReturn:
    raise InvalidJobError(reason)


def _referenced(path: Any, root: Any, where: str) -> Any:
    node = root
    for name in str(path).removeprefix("#/").split("/"):
        if not str(path).startswith("#/") or not isinstance(node, dict) or name not in node:
            _fail(f"cannot follow {path!r} in node {where}")
        node = node[name]
    return node
