"""Types as text that can be parsed again.

The registry of states and a savepoint's metadata describe their bytes by such a signature, so that
they can be decoded without the program that wrote them. The text is that of ``Types``: ``LONG``,
``LIST(STRING)``, ``ROW(name: STRING, n: LONG)``; a field name that is no plain word is quoted as in
JSON. Equal types have equal signatures, different types have different ones. Signatures are part of
every checkpoint: one may be added, but none may ever change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NoReturn

from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.types.traversal import TypeVisitor

PICKLED = "PICKLED_BYTE_ARRAY"

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\]|\\.)*"|[(),:])')

_LEAVES: dict[str, TypeInformation] = {
    **{kind.name: BasicTypeInfo(kind) for kind in BasicType},
    **{f"SQL_{kind.name}": SqlTimeTypeInfo(kind) for kind in SqlTimeType},
    PICKLED: PickledBytesTypeInfo(),
}
_LEAF_NAMES = {type_info: name for name, type_info in _LEAVES.items()}

_ARRAYS: dict[str, Callable[[TypeInformation], TypeInformation]] = {
    "LIST": ListTypeInfo,
    "PRIMITIVE_ARRAY": PrimitiveArrayTypeInfo,
    "BASIC_ARRAY": BasicArrayTypeInfo,
    "OBJECT_ARRAY": ObjectArrayTypeInfo,
}
_ARRAY_NAMES = {array: name for name, array in _ARRAYS.items()}


def type_signature(type_info: TypeInformation) -> str:
    """Return the signature of a type."""
    return _Signature().visit(type_info)


class _Signature(TypeVisitor[str]):
    def visit_leaf(self, type_info: TypeInformation) -> str:
        return _LEAF_NAMES[type_info]

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> str:
        return PICKLED

    def visit_bytes(self, type_info: TypeInformation) -> str:
        return "PRIMITIVE_ARRAY(BYTE)"

    def visit_array(self, element: str, type_info: TypeInformation) -> str:
        return f"{_ARRAY_NAMES[type(type_info)]}({element})"

    def visit_map(self, key: str, value: str, type_info: MapTypeInfo) -> str:
        return f"MAP({key}, {value})"

    def visit_tuple(self, fields: list[str], type_info: TupleTypeInfo) -> str:
        return f"TUPLE({', '.join(fields)})"

    def visit_row(self, fields: list[str], type_info: RowTypeInfo) -> str:
        pairs = zip(map(_quoted, type_info.field_names), fields, strict=True)
        return f"ROW({', '.join(f'{name}: {field}' for name, field in pairs)})"

    def unsupported(self, type_info: TypeInformation) -> NoReturn:
        message = f"{type_info!r} has no type signature"
        raise TypeError(message)


def is_pickled(type_info: TypeInformation | None) -> bool:
    """Whether values of a type, or without a declared one, are pickled, as a whole or in part."""
    return type_info is None or PICKLED in type_signature(type_info)


def parse_signature(signature: str) -> TypeInformation:
    """Return the type that has this signature.

    Raises:
        ValueError: if it is no type's signature.
    """
    parser = _Parser(signature)
    try:
        type_info = parser.type_info()
        parser.take("")
    except TypeError as error:
        raise ValueError(str(error)) from error
    return type_info


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


class _Parser:
    def __init__(self, signature: str) -> None:
        self._signature = signature
        self._at = 0
        self._next = ""
        self._advance()

    def type_info(self) -> TypeInformation:
        name = self._take_any()
        if name in _LEAVES:
            return _LEAVES[name]
        self.take("(")
        names: list[str] = []
        types: list[TypeInformation] = []
        while self._next != ")":
            if types:
                self.take(",")
            if name == "ROW":
                names.append(self._field_name())
                self.take(":")
            types.append(self.type_info())
        self.take(")")
        if name == "ROW":
            return RowTypeInfo(tuple(types), tuple(names))
        if name == "TUPLE":
            return TupleTypeInfo(tuple(types))
        if name == "MAP" and len(types) == 2:
            return MapTypeInfo(*types)
        if name in _ARRAYS and len(types) == 1:
            return _ARRAYS[name](types[0])
        raise self._error()

    def take(self, wanted: str) -> None:
        if self._next != wanted:
            raise self._error()
        self._advance()

    def _field_name(self) -> str:
        token = self._take_any()
        if token.startswith('"'):
            name: str = json.loads(token)
            return name
        if not _WORD.fullmatch(token):
            raise self._error()
        return token

    def _take_any(self) -> str:
        token = self._next
        if not token:
            raise self._error()
        self._advance()
        return token

    def _advance(self) -> None:
        found = _TOKEN.match(self._signature, self._at)
        if found is None and self._signature[self._at :].strip():
            raise self._error()
        self._next = "" if found is None else found[1]
        self._at = len(self._signature) if found is None else found.end()

    def _error(self) -> ValueError:
        return ValueError(f"{self._signature!r} is not a type signature: error before {self._at}")
