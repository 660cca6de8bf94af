"""Rows as lines of CSV."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, TypeAlias

from penstock.common.java_text import java_string
from penstock.common.row import Row
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    ObjectArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
    Types,
)
from penstock.connectors.csv_lines import CsvLayout, cells_of, line_writer
from penstock.connectors.text_values import bytes_of_base64, parser_of
from penstock.errors import ConnectorError, InvalidJobError

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

_Parser: TypeAlias = Callable[[str], Any]
_Speller: TypeAlias = Callable[[Any], str]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_TEXTUAL = (BasicType.STRING, BasicType.CHAR)
_LINE_DELIMITERS = ("\n", "\r", "\r\n", "")


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows out of one line of CSV each, by the order of the fields."""

    def __init__(
        self, type_info: RowTypeInfo, layout: CsvLayout, *, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self._layout = layout
        self.ignores_parse_errors = ignore_parse_errors
        self._parsers: list[_Parser] | None = None
        self._make()

    def deserialize(self, message: bytes) -> Any:
        """Return the row; None, so that it is left out, for an empty line.

        Also for a line that cannot be parsed, if parse errors are ignored.
        """
        try:
            return self._row(cells_of(self._layout, message.decode("utf-8")))
        except ValueError as error:
            if self.ignores_parse_errors:
                return None
            text = f"Failed to deserialize CSV row: {error}"
            raise ConnectorError(text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsers": None}

    def _make(self) -> list[_Parser]:
        ignore = self.ignores_parse_errors
        types = self._type_info.field_types
        self._parsers = [_nullable(kind, self._layout, ignore) for kind in types]
        return self._parsers

    def _row(self, cells: list[str]) -> Row | None:
        if not cells:
            return None
        parsers = self._parsers or self._make()
        missing = len(parsers) - len(cells)
        if missing < 0 or (missing and not self.ignores_parse_errors):
            message = f"Row length mismatch. {len(parsers)} fields expected but was {len(cells)}."
            raise ValueError(message)
        values = [parse(cell) for parse, cell in zip(parsers, cells, strict=False)]
        row = Row(*values, *[None] * missing)
        row.set_field_names(list(self._type_info.field_names))
        return row

    class Builder:
        """Describes a :class:`CsvRowDeserializationSchema`."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._layout = CsvLayout()
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> Self:
            """Separate fields by this character instead of a comma."""
            self._layout = replace(self._layout, delimiter=_character("delimiter", delimiter))
            return self

        def set_allow_comments(self, allow_comments: bool) -> Self:
            """Leave out lines that begin with ``#``."""
            self._layout = replace(self._layout, comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            """Separate the elements of an array by this text instead of ``;``."""
            self._layout = replace(self._layout, array_delimiter=_not_empty(delimiter))
            return self

        def set_quote_character(self, c: str) -> Self:
            """Enclose fields in this character instead of double quotes."""
            self._layout = replace(self._layout, quote=_character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> Self:
            """Take the character behind this one as it is."""
            self._layout = replace(self._layout, escape=_character("escape character", c))
            return self

        def set_null_literal(self, null_literal: str) -> Self:
            """Make None of a field with exactly this text."""
            self._layout = replace(self._layout, null_literal=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:
            """Make None of a field that cannot be parsed, and leave out what is no such row."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Make the schema."""
            return CsvRowDeserializationSchema(
                self._type_info, self._layout, ignore_parse_errors=self._ignore_parse_errors
            )


class CsvRowSerializationSchema(SerializationSchema):
    """One line of CSV out of each row."""

    def __init__(self, type_info: RowTypeInfo, layout: CsvLayout) -> None:
        self._type_info = type_info
        self._layout = layout
        self._write: Callable[[Any], bytes] | None = None
        self._make()

    def serialize(self, element: Any) -> bytes:
        """Return the line, with its end."""
        write = self._write or self._make()
        try:
            return write(element)
        except (ValueError, TypeError, AttributeError) as error:
            message = f"Could not serialize row {element!r}: {error}"
            raise ConnectorError(message) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_write": None}

    def _make(self) -> Callable[[Any], bytes]:
        layout, write_line = self._layout, line_writer(self._layout)
        spellers = [
            (_speller(kind, layout), _is_text(kind)) for kind in self._type_info.field_types
        ]
        null = layout.null_literal or ""

        def write(row: Any) -> bytes:
            if len(row) != len(spellers):
                message = (
                    f"Row length mismatch. {len(spellers)} fields expected but was {len(row)}."
                )
                raise ValueError(message)
            cells = [
                (null, False) if value is None else (spell(value), is_text)
                for value, (spell, is_text) in zip(row, spellers, strict=True)
            ]
            return write_line(cells).encode("utf-8")

        self._write = write
        return write

    class Builder:
        """Describes a :class:`CsvRowSerializationSchema`."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = _row_type(type_info)
            self._layout = CsvLayout()

        def set_field_delimiter(self, c: str) -> Self:
            """Separate fields by this character instead of a comma."""
            self._layout = replace(self._layout, delimiter=_character("delimiter", c))
            return self

        def set_line_delimiter(self, delimiter: str) -> Self:
            r"""End lines with this text instead of ``\n``; empty for none."""
            if delimiter not in _LINE_DELIMITERS:
                message = (
                    "Unsupported new line delimiter. "
                    "Only \\n, \\r, \\r\\n, or empty string are supported."
                )
                raise InvalidJobError(message)
            self._layout = replace(self._layout, line_delimiter=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            """Separate the elements of an array by this text instead of ``;``."""
            self._layout = replace(self._layout, array_delimiter=_not_empty(delimiter))
            return self

        def disable_quote_character(self) -> Self:
            """Write all fields as they are."""
            self._layout = replace(self._layout, quote=None)
            return self

        def set_quote_character(self, c: str) -> Self:
            """Enclose fields in this character instead of double quotes."""
            self._layout = replace(self._layout, quote=_character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> Self:
            """Put this character before quotes inside of quotes, instead of doubling them."""
            self._layout = replace(self._layout, escape=_character("escape character", c))
            return self

        def set_null_literal(self, s: str) -> Self:
            """Write this text for None."""
            self._layout = replace(self._layout, null_literal=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Make the schema."""
            return CsvRowSerializationSchema(self._type_info, self._layout)


def _row_type(type_info: TypeInformation | None) -> RowTypeInfo:
    if type_info is None:
        message = "Type information must not be None"
        raise TypeError(message)
    if not isinstance(type_info, RowTypeInfo):
        message = f"Row type information expected; got {type_info!r}"
        raise InvalidJobError(message)
    return type_info


def _character(what: str, text: str) -> str:
    if not isinstance(text, str) or len(text) != 1:
        message = f"a {what} is one character; got {text!r}"
        raise InvalidJobError(message)
    return text


def _not_empty(text: str) -> str:
    if not text:
        message = "an array element delimiter must not be empty"
        raise InvalidJobError(message)
    return text


def _nullable(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> _Parser:
    parse = _parser(type_info, layout, ignore_errors)
    null = layout.null_literal

    def parse_or_none(cell: str) -> Any:
        if cell == null:
            return None
        try:
            return parse(cell)
        except ValueError:
            if ignore_errors:
                return None
            raise

    return parse_or_none


def _parser(type_info: TypeInformation, layout: CsvLayout, ignore_errors: bool) -> _Parser:
    if (parse := parser_of(type_info)) is not None:
        return parse
    if type_info == _BYTES:
        return bytes_of_base64
    if (element := _element(type_info)) is not None:
        each = _nullable(element, layout, ignore_errors)
        return lambda cell: [each(part) for part in _parts(cell, layout)]
    if isinstance(type_info, RowTypeInfo):
        parsers = [_nullable(kind, layout, ignore_errors) for kind in type_info.field_types]
        names = list(type_info.field_names)
        return lambda cell: _nested_row(parsers, names, _parts(cell, layout))
    message = f"Unsupported type information {type_info!r} in a CSV row"
    raise InvalidJobError(message)


def _nested_row(parsers: list[_Parser], names: list[str], parts: list[str]) -> Row:
    if len(parts) != len(parsers):
        message = f"Row length mismatch. {len(parsers)} fields expected but was {len(parts)}."
        raise ValueError(message)
    row = Row(*(parse(part) for parse, part in zip(parsers, parts, strict=True)))
    row.set_field_names(names)
    return row


def _parts(cell: str, layout: CsvLayout) -> list[str]:
    return cell.split(layout.array_delimiter) if cell else []


def _element(type_info: TypeInformation) -> TypeInformation | None:
    match type_info:
        case ListTypeInfo(element) | ObjectArrayTypeInfo(element) | BasicArrayTypeInfo(element):
            return element
    return None


def _speller(type_info: TypeInformation, layout: CsvLayout) -> _Speller:
    if isinstance(type_info, BasicTypeInfo | SqlTimeTypeInfo):
        if parser_of(type_info) is not None:
            return lambda value: java_string(value, type_info)
    elif type_info == _BYTES:
        return lambda value: base64.b64encode(value).decode()
    elif (element := _element(type_info)) is not None:
        each = _speller(element, layout)
        return lambda values: _joined([(each, value) for value in values], layout)
    elif isinstance(type_info, RowTypeInfo):
        spellers = [_speller(kind, layout) for kind in type_info.field_types]
        return lambda row: _joined(list(zip(spellers, row, strict=True)), layout)
    message = f"Unsupported type information {type_info!r} in a CSV row"
    raise InvalidJobError(message)


def _joined(parts: list[tuple[_Speller, Any]], layout: CsvLayout) -> str:
    null = layout.null_literal or ""
    return layout.array_delimiter.join(null if v is None else spell(v) for spell, v in parts)


def _is_text(type_info: TypeInformation) -> bool:
    if isinstance(type_info, BasicTypeInfo):
        return type_info.kind in _TEXTUAL
    return True
