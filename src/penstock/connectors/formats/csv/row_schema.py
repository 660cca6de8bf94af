"""Serialization schemas for rows as lines of CSV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from penstock.common.row import Row
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.csv.cells import (
    CsvLayout,
    LayoutBuilder,
    line_writer,
    row_formatter,
    row_parser,
    split_cells,
)
from penstock.connectors.formats.format_settings import Compiled, check_character, check_row_type
from penstock.connectors.formats.text_values import reject
from penstock.errors import ConnectorError


class _Builder(LayoutBuilder):
    """The settings that both schemas have."""

    def __init__(self, type_info: TypeInformation) -> None:
        super().__init__()
        self._type_info = check_row_type(type_info, "Type information must not be None")

    def set_array_element_delimiter(self, delimiter: str) -> Self:
        """Separate the elements of an array by this text instead of ``;``."""
        require(delimiter, "an array element delimiter must not be empty")
        return self._with(array_delimiter=delimiter)

    def set_quote_character(self, c: str) -> Self:
        """Enclose fields in this character instead of double quotes."""
        return self._with(quote=check_character("quote character", c))

    def set_escape_character(self, c: str) -> Self:
        """Read the character after this one literally, and write this one twice.

        Quotes inside quotes are doubled in any case.
        """
        return self._with(escape=check_character("escape character", c))


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads a row from each line of CSV, by the order of the fields."""

    def __init__(
        self, type_info: RowTypeInfo, layout: CsvLayout, *, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self._layout = layout
        self.ignores_parse_errors = ignore_parse_errors
        self._parsers = Compiled(row_parser, type_info.field_types, layout, ignore_parse_errors)

    def deserialize(self, message: bytes) -> Any:
        """Return the row; None, so that it is skipped, for an empty line.

        Also for a line that cannot be parsed, if parse errors are ignored.
        """
        try:
            return self._row(split_cells(self._layout, message.decode("utf-8")))
        except ValueError as error:
            if self.ignores_parse_errors:
                return None
            text = f"Failed to deserialize CSV row: {error}"
            raise ConnectorError(text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info

    def _row(self, cells: list[str]) -> Row | None:
        if not cells:
            return None
        parsers = self._parsers.function
        missing = len(parsers) - len(cells)
        if missing < 0 or (missing and not self.ignores_parse_errors):
            reject(f"Row length mismatch. {len(parsers)} fields expected but was {len(cells)}.")
        values = [parse(cell) for parse, cell in zip(parsers, cells, strict=False)]
        row = Row(*values, *[None] * missing)
        row.set_field_names(list(self._type_info.field_names))
        return row

    class Builder(_Builder):
        """Builds a :class:`CsvRowDeserializationSchema`."""

        _ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> Self:
            """Separate fields by this character instead of a comma."""
            return self._with(delimiter=check_character("delimiter", delimiter))

        def set_allow_comments(self, allow_comments: bool) -> Self:
            """Skip lines that begin with ``#``."""
            return self._with(comments=allow_comments)

        def set_null_literal(self, null_literal: str) -> Self:
            """Read a field with exactly this text as None."""
            return self._with(null_literal=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:
            """Read a field that cannot be parsed as None, and skip lines that are not such rows."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Build the schema."""
            return CsvRowDeserializationSchema(
                self._type_info, self._layout, ignore_parse_errors=self._ignore_parse_errors
            )


def _row_writer(type_info: RowTypeInfo, layout: CsvLayout) -> Callable[[Any], bytes]:
    write_line, types = line_writer(layout), type_info.field_types
    cells_of = row_formatter([(kind, layout) for kind in types], layout.null_literal or "")

    def write(row: Any) -> bytes:
        if len(row) != len(types):
            reject(f"Row length mismatch. {len(types)} fields expected but was {len(row)}.")
        return write_line(cells_of(row)).encode("utf-8")

    return write


class CsvRowSerializationSchema(SerializationSchema):
    """Writes each row as one line of CSV."""

    def __init__(self, type_info: RowTypeInfo, layout: CsvLayout) -> None:
        self._write = Compiled(_row_writer, type_info, layout)

    def serialize(self, element: Any) -> bytes:
        """Return the line, with its end."""
        try:
            return self._write.function(element)
        except (ValueError, TypeError, AttributeError) as error:
            message = f"Could not serialize row {element!r}: {error}"
            raise ConnectorError(message) from error

    class Builder(_Builder):
        """Builds a :class:`CsvRowSerializationSchema`."""

        def set_field_delimiter(self, c: str) -> Self:
            """Separate fields by this character instead of a comma."""
            return self._with(delimiter=check_character("delimiter", c))

        def set_line_delimiter(self, delimiter: str) -> Self:
            r"""End lines with this text instead of ``\n``; empty for none."""
            message = (
                "Unsupported new line delimiter. "
                "Only \\n, \\r, \\r\\n, or empty string are supported."
            )
            require(delimiter in ("\n", "\r", "\r\n", ""), message)
            return self._with(line_delimiter=delimiter)

        def disable_quote_character(self) -> Self:
            """Write all fields without quotes."""
            return self._with(quote=None)

        def set_null_literal(self, s: str) -> Self:
            """Write this text for None."""
            return self._with(null_literal=s)

        def build(self) -> CsvRowSerializationSchema:
            """Build the schema."""
            return CsvRowSerializationSchema(self._type_info, self._layout)
