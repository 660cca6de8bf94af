"""Schema of a CSV file: its columns, and what separates and encloses their cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from penstock.common import typeinfo
from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.csv.cells import CsvLayout, LayoutBuilder
from penstock.connectors.formats.format_settings import check_character
from penstock.types.coercion import INTEGER_BITS

_NUMBERS = {
    *INTEGER_BITS,
    typeinfo.BasicType.FLOAT,
    typeinfo.BasicType.DOUBLE,
    typeinfo.BasicType.BIG_INT,
    typeinfo.BasicType.BIG_DEC,
}


@dataclass(frozen=True, slots=True)
class CsvColumn:
    """A column; ``separator`` is that of an array's elements, empty for the file's."""

    name: str
    type_info: typeinfo.TypeInformation
    separator: str = ""


@dataclass(frozen=True, slots=True)
class CsvSchema:
    """The columns and the layout of a CSV file; built by :meth:`builder`."""

    columns: tuple[CsvColumn, ...]
    layout: CsvLayout
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a builder without columns."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def names(self) -> list[str]:
        """Return the names of the columns in order."""
        return [column.name for column in self.columns]

    def row_type(self) -> typeinfo.RowTypeInfo:
        """Return the type of the rows."""
        return typeinfo.Types.ROW_NAMED(self.names(), [column.type_info for column in self.columns])

    def columns_with_layouts(self) -> list[tuple[typeinfo.TypeInformation, CsvLayout]]:
        """Return the type of each column, and the layout with its own element separator."""
        default = self.layout.array_delimiter
        return [
            (column.type_info, replace(self.layout, array_delimiter=column.separator or default))
            for column in self.columns
        ]

    def lines_before_data(self) -> int:
        """Return how many lines at the start of a file are not records."""
        return self.use_header + self.skip_first_data_row


class CsvSchemaBuilder(LayoutBuilder, ExplainsMissingMethods):
    """Builds a :class:`CsvSchema`: commas, double quotes, no header, no columns yet."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: list[CsvColumn] = []
        self._flags: dict[str, bool] = {}

    def build(self) -> CsvSchema:
        """Build the schema."""
        names = [column.name for column in self._columns]
        require(names, "a CSV schema needs at least one column: add_string_column('name')")
        is_distinct = len(set(names)) == len(names)
        require(is_distinct, f"a CSV schema needs distinct column names; got {names!r}")
        return CsvSchema(tuple(self._columns), self._layout, **self._flags)

    def add_array_column(
        self, name: str, separator: str = ";", element_type: typeinfo.TypeInformation | None = None
    ) -> Self:
        """Add a column of lists, by default of strings."""
        element = typeinfo.Types.STRING() if element_type is None else element_type
        return self._add(CsvColumn(name, typeinfo.Types.OBJECT_ARRAY(element), separator))

    def add_boolean_column(self, name: str) -> Self:
        """Add a column of booleans."""
        return self._add(CsvColumn(name, typeinfo.Types.BOOLEAN()))

    def add_number_column(
        self, name: str, number_type: typeinfo.TypeInformation | None = None
    ) -> Self:
        """Add a column of numbers, by default 64-bit integers."""
        kind = typeinfo.Types.LONG() if number_type is None else number_type
        is_number = isinstance(kind, typeinfo.BasicTypeInfo) and kind.kind in _NUMBERS
        require(is_number, f"column {name!r}: a number type is expected; got {number_type!r}")
        return self._add(CsvColumn(name, kind))

    def add_string_column(self, name: str) -> Self:
        """Add a column of strings."""
        return self._add(CsvColumn(name, typeinfo.Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> Self:
        """Add all columns of another schema."""
        return self._add(*schema.columns)

    def clear_columns(self) -> Self:
        """Remove all columns."""
        self._columns.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> Self:
        """Skip lines that begin with ``#``."""
        return self._with(comments=allow)

    def disable_array_element_separator(self) -> Self:
        """Read the cell of a list without a separator of its own as one element."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> Self:
        """Use the separator of the file for a column of lists."""
        self._columns[index] = replace(self._columns[index], separator="")
        return self

    def set_array_element_separator(self, separator: str) -> Self:
        """Set the separator of list elements for columns without their own."""
        return self._with(array_delimiter=separator)

    def set_column_separator(self, char: str) -> Self:
        """Separate cells by this character instead of a comma."""
        return self._with(delimiter=check_character("column separator", char))

    def disable_escape_char(self) -> Self:
        """Use no escape character; the default."""
        return self._with(escape=None)

    def set_escape_char(self, char: str) -> Self:
        """Read the character after this one literally."""
        return self._with(escape=check_character("escape character", char))

    def set_line_separator(self, separator: str) -> Self:
        r"""End written lines with this; lines that are read may end with any of them."""
        message = f"a line separator is \\n, \\r or \\r\\n; got {separator!r}"
        require(separator in ("\n", "\r", "\r\n"), message)
        return self._with(line_delimiter=separator)

    def set_null_value(self, null_value: str) -> Self:
        """Read cells with exactly this text as None, and write None as this text."""
        return self._with(null_literal=null_value)

    def disable_quote_char(self) -> Self:
        """Treat quotes as any other character."""
        return self._with(quote=None)

    def set_quote_char(self, char: str) -> Self:
        """Enclose cells in this character instead of double quotes."""
        return self._with(quote=check_character("quote character", char))

    def set_skip_first_data_row(self, skip: bool = True) -> Self:
        """Skip the first line of a file, or the one after its header."""
        self._flags["skip_first_data_row"] = skip
        return self

    def set_strict_headers(self, strict: bool = True) -> Self:
        """Reject a file whose header does not name the columns in their order."""
        self._flags["strict_headers"] = strict
        return self

    def set_use_header(self, use: bool = True) -> Self:
        """Expect a header in files that are read, and write one."""
        self._flags["use_header"] = use
        return self

    def size(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def _add(self, *columns: CsvColumn) -> Self:
        self._columns.extend(columns)
        return self
