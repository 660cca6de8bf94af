"""Rows as lines of CSV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from penstock.common.row import Row
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.csv_cells import (
    CellParser,
    cell_parser,
    cell_speller,
    character,
    is_text,
    not_empty,
    row_type_of,
)
from penstock.connectors.csv_lines import CsvLayout, cells_of, line_writer
from penstock.errors import ConnectorError, InvalidJobError

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

_LINE_DELIMITERS = ("\n", "\r", "\r\n", "")


class CsvRowDeserializationSchema(DeserializationSchema):
    """Rows out of one line of CSV each, by the order of the fields."""

    def __init__(
        self, type_info: RowTypeInfo, layout: CsvLayout, *, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self._layout = layout
        self.ignores_parse_errors = ignore_parse_errors
        self._parsers: list[CellParser] | None = None
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

    def _make(self) -> list[CellParser]:
        ignore = self.ignores_parse_errors
        types = self._type_info.field_types
        self._parsers = [cell_parser(kind, self._layout, ignore) for kind in types]
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
            self._type_info = row_type_of(type_info)
            self._layout = CsvLayout()
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> Self:
            """Separate fields by this character instead of a comma."""
            self._layout = replace(self._layout, delimiter=character("delimiter", delimiter))
            return self

        def set_allow_comments(self, allow_comments: bool) -> Self:
            """Leave out lines that begin with ``#``."""
            self._layout = replace(self._layout, comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> Self:
            """Separate the elements of an array by this text instead of ``;``."""
            self._layout = replace(self._layout, array_delimiter=not_empty(delimiter))
            return self

        def set_quote_character(self, c: str) -> Self:
            """Enclose fields in this character instead of double quotes."""
            self._layout = replace(self._layout, quote=character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> Self:
            """Take the character behind this one as it is."""
            self._layout = replace(self._layout, escape=character("escape character", c))
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
            (cell_speller(kind, layout), is_text(kind)) for kind in self._type_info.field_types
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
            self._type_info = row_type_of(type_info)
            self._layout = CsvLayout()

        def set_field_delimiter(self, c: str) -> Self:
            """Separate fields by this character instead of a comma."""
            self._layout = replace(self._layout, delimiter=character("delimiter", c))
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
            self._layout = replace(self._layout, array_delimiter=not_empty(delimiter))
            return self

        def disable_quote_character(self) -> Self:
            """Write all fields as they are."""
            self._layout = replace(self._layout, quote=None)
            return self

        def set_quote_character(self, c: str) -> Self:
            """Enclose fields in this character instead of double quotes."""
            self._layout = replace(self._layout, quote=character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> Self:
            """Put this character before itself; quotes inside of quotes are doubled, as ever."""
            self._layout = replace(self._layout, escape=character("escape character", c))
            return self

        def set_null_literal(self, s: str) -> Self:
            """Write this text for None."""
            self._layout = replace(self._layout, null_literal=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Make the schema."""
            return CsvRowSerializationSchema(self._type_info, self._layout)
