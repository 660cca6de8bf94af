"""Finds what is dangerous in the schema of an Avro file: values without bytes, and recursion."""

from __future__ import annotations

from typing import Any

from penstock.connectors.formats.text_values import reject


def reject_empty_items(schema: Any) -> None:
    """Reject a schema with arrays whose items take no bytes.

    A few bytes could claim any number of such items, and all of them would be in memory.

    Raises:
        ValueError: if there is such an array.
    """
    _is_empty(schema, {})


def is_recursive(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """Whether records of a schema may contain records of the same name, to any depth."""
    if isinstance(schema, list):
        return any(is_recursive(branch, inside) for branch in schema)
    if isinstance(schema, str):
        return _name(schema) in inside
    if not isinstance(schema, dict):
        return False
    if isinstance(schema.get("name"), str):
        inside = inside | {_name(schema["name"])}
    fields = [f.get("type") for f in schema.get("fields") or () if isinstance(f, dict)]
    parts = [schema.get("items"), schema.get("values"), *fields]
    if not isinstance(schema.get("type"), str):
        parts.append(schema.get("type"))
    return any(is_recursive(part, inside) for part in parts)


def _is_empty(schema: Any, named: dict[str, bool]) -> bool:
    """Whether values of a schema take no bytes; what is malformed is left to the Avro library."""
    if isinstance(schema, list):
        for branch in schema:
            _is_empty(branch, named)
        return False  # the number of the branch takes a byte
    if isinstance(schema, str):
        return schema == "null" or named.get(_name(schema), False)
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if not isinstance(kind, str):
        return _is_empty(kind, named)
    if kind == "array":
        if _is_empty(schema.get("items"), named):
            reject("it has an array whose items take no bytes, which is not supported")
        return False
    if kind == "map":
        _is_empty(schema.get("values"), named)
        return False
    if kind == "fixed":
        return _remember(schema, named, schema.get("size") == 0)
    if kind in ("record", "error"):
        _remember(schema, named, False)
        fields = schema.get("fields") or ()
        types = [_is_empty(f.get("type"), named) for f in fields if isinstance(f, dict)]
        return _remember(schema, named, all(types))
    return _is_empty(kind, named)


def _remember(schema: dict[str, Any], named: dict[str, bool], is_empty: bool) -> bool:
    named[_name(str(schema.get("name")))] = is_empty
    return is_empty


def _name(full_name: str) -> str:
    return full_name.rpartition(".")[2]
