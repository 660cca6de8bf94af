"""Types as text that can be read back.

A registry of states and a savepoint say in this text what their bytes mean, so that they can be
decoded without the program that wrote them. The text is that of ``Types``: ``LONG``,
``LIST(STRING)``, ``ROW(name: STRING, n: LONG)``; a field name that is no plain word is quoted as
in JSON. Equal types have equal text, and different types have different text. It is part of every
checkpoint: a spelling may be added, but never change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

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

__all__ = ["PICKLED", "parse", "spell"]

PICKLED = "PICKLED_BYTE_ARRAY"

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\]|\\.)*"|[(),:])')

_SINGLE: dict[str, TypeInformation] = {
    **{kind.name: BasicTypeInfo(kind) for kind in BasicType},
    **{f"SQL_{kind.name}": SqlTimeTypeInfo(kind) for kind in SqlTimeType},
    PICKLED: PickledBytesTypeInfo(),
}
_SINGLE_NAMES = {type_info: name for name, type_info in _SINGLE.items()}

_OF_ONE: dict[str, Callable[[TypeInformation], TypeInformation]] = {
    "LIST": ListTypeInfo,
    "PRIMITIVE_ARRAY": PrimitiveArrayTypeInfo,
    "BASIC_ARRAY": BasicArrayTypeInfo,
    "OBJECT_ARRAY": ObjectArrayTypeInfo,
}


def spell(type_info: TypeInformation) -> str:
    """Return the text of a type."""
    match type_info:
        case PickledBytesTypeInfo():
            return PICKLED
        case BasicTypeInfo() | SqlTimeTypeInfo():
            return _SINGLE_NAMES[type_info]
        case ListTypeInfo(element):
            return f"LIST({spell(element)})"
        case PrimitiveArrayTypeInfo(element):
            return f"PRIMITIVE_ARRAY({spell(element)})"
        case BasicArrayTypeInfo(element):
            return f"BASIC_ARRAY({spell(element)})"
        case ObjectArrayTypeInfo(element):
            return f"OBJECT_ARRAY({spell(element)})"
        case MapTypeInfo(key, value):
            return f"MAP({spell(key)}, {spell(value)})"
        case TupleTypeInfo(field_types):
            return f"TUPLE({', '.join(map(spell, field_types))})"
        case RowTypeInfo(field_types, field_names):
            fields = zip(field_names, field_types, strict=True)
            return f"ROW({', '.join(f'{_quoted(name)}: {spell(kind)}' for name, kind in fields)})"
    message = f"{type_info!r} has no text"
    raise TypeError(message)


def parse(text: str) -> TypeInformation:
    """Return the type that has this text.

    Raises:
        ValueError: if it is no type's text.
    """
    reader = _Reader(text)
    try:
        type_info = reader.type_info()
        reader.take("")
    except TypeError as error:
        raise ValueError(str(error)) from error
    return type_info


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next = ""
        self._advance()

    def type_info(self) -> TypeInformation:
        name = self._take_any()
        if name in _SINGLE:
            return _SINGLE[name]
        self.take("(")
        if name == "ROW":
            return self._row()
        types = self._types()
        if name == "TUPLE":
            return TupleTypeInfo(tuple(types))
        if name == "MAP" and len(types) == 2:
            return MapTypeInfo(*types)
        if name in _OF_ONE and len(types) == 1:
            return _OF_ONE[name](types[0])
        raise self._error()

    def take(self, wanted: str) -> None:
        if self._next != wanted:
            raise self._error()
        self._advance()

    def _types(self) -> list[TypeInformation]:
        types: list[TypeInformation] = []
        while self._next != ")":
            if types:
                self.take(",")
            types.append(self.type_info())
        self.take(")")
        return types

    def _row(self) -> TypeInformation:
        names: list[str] = []
        types: list[TypeInformation] = []
        while self._next != ")":
            if types:
                self.take(",")
            names.append(self._name())
            self.take(":")
            types.append(self.type_info())
        self.take(")")
        return RowTypeInfo(tuple(types), tuple(names))

    def _name(self) -> str:
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
        found = _TOKEN.match(self._text, self._at)
        if found is None and self._text[self._at :].strip():
            raise self._error()
        self._next = "" if found is None else found[1]
        self._at = len(self._text) if found is None else found.end()

    def _error(self) -> ValueError:
        return ValueError(f"no type is spelled {self._text!r}; it went wrong before {self._at}")
