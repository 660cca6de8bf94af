"""What a CSV file looks like: its columns, and what separates and encloses their cells."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from penstock.common.missing_names import AsksForPyFlink
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)
from penstock.connectors.csv_cells import character
from penstock.connectors.csv_lines import CsvLayout
from penstock.errors import InvalidJobError

__all__ = ["CsvColumn", "CsvSchema", "CsvSchemaBuilder"]

_NUMBERS = frozenset(
    [
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.BIG_INT,
        BasicType.BIG_DEC,
    ]
)


@dataclass(frozen=True, slots=True)
class CsvColumn:
    """A column; ``separator`` is that of the elements of an array, empty for that of the file."""

    name: str
    type_info: TypeInformation
    separator: str = ""


@dataclass(frozen=True, slots=True)
class CsvSchema:
    """The columns of a CSV file and how it is written; made by :meth:`builder`."""

    columns: tuple[CsvColumn, ...]
    layout: CsvLayout
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Begin to describe a schema."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Tell how many columns there are."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def names(self) -> list[str]:
        """Return the names of the columns in order."""
        return [column.name for column in self.columns]

    def row_type(self) -> RowTypeInfo:
        """Return the type of the rows."""
        types = [column.type_info for column in self.columns]
        return Types.ROW_NAMED(self.names(), types)

    def layout_of(self, column: CsvColumn) -> CsvLayout:
        """Return the layout with the separator of the elements of a column."""
        separator = column.separator or self.layout.array_delimiter
        return replace(self.layout, array_delimiter=separator)

    def lines_before_data(self) -> int:
        """Tell how many lines of a file are no records."""
        return self.use_header + self.skip_first_data_row


@dataclass(slots=True)
class CsvSchemaBuilder(AsksForPyFlink):
    """Builds a :class:`CsvSchema`: commas, double quotes, no header, no columns yet."""

    _columns: list[CsvColumn] = field(default_factory=list)
    _layout: CsvLayout = field(default_factory=CsvLayout)
    _use_header: bool = False
    _strict_headers: bool = False
    _skip_first_data_row: bool = False

    def build(self) -> CsvSchema:
        """Make the schema."""
        if not self._columns:
            message = "a CSV schema needs at least one column: add_string_column('name')"
            raise InvalidJobError(message)
        names = [column.name for column in self._columns]
        if len(set(names)) != len(names):
            message = f"a CSV schema needs distinct column names; got {names!r}"
            raise InvalidJobError(message)
        return CsvSchema(
            tuple(self._columns),
            self._layout,
            self._use_header,
            self._strict_headers,
            self._skip_first_data_row,
        )

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> Self:
        """Add a column of lists, by default of strings."""
        element = Types.STRING() if element_type is None else element_type
        self._columns.append(CsvColumn(name, Types.OBJECT_ARRAY(element), separator))
        return self

    def add_boolean_column(self, name: str) -> Self:
        """Add a column of truth values."""
        self._columns.append(CsvColumn(name, Types.BOOLEAN()))
        return self

    def add_number_column(self, name: str, number_type: TypeInformation | None = None) -> Self:
        """Add a column of numbers, by default whole ones in 64 bits."""
        kind = Types.LONG() if number_type is None else number_type
        if not (isinstance(kind, BasicTypeInfo) and kind.kind in _NUMBERS):
            message = f"column {name!r}: a number type is expected; got {number_type!r}"
            raise InvalidJobError(message)
        self._columns.append(CsvColumn(name, kind))
        return self

    def add_string_column(self, name: str) -> Self:
        """Add a column of text."""
        self._columns.append(CsvColumn(name, Types.STRING()))
        return self

    def add_columns_from(self, schema: CsvSchema) -> Self:
        """Add all columns of another schema."""
        self._columns.extend(schema.columns)
        return self

    def clear_columns(self) -> Self:
        """Take all columns away."""
        self._columns.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> Self:
        """Leave out lines that begin with ``#``."""
        self._layout = replace(self._layout, comments=allow)
        return self

    def disable_array_element_separator(self) -> Self:
        """Take the cell of a list without a separator of its own as one element."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> Self:
        """Let a column of lists have the separator of the file."""
        self._columns[index] = replace(self._columns[index], separator="")
        return self

    def set_array_element_separator(self, separator: str) -> Self:
        """Separate the elements of lists by this unless their column says otherwise."""
        self._layout = replace(self._layout, array_delimiter=separator)
        return self

    def set_column_separator(self, char: str) -> Self:
        """Separate cells by this character instead of a comma."""
        self._layout = replace(self._layout, delimiter=character("column separator", char))
        return self

    def disable_escape_char(self) -> Self:
        """Have no escape character; the default."""
        self._layout = replace(self._layout, escape=None)
        return self

    def set_escape_char(self, char: str) -> Self:
        """Take the character behind this one as it is."""
        self._layout = replace(self._layout, escape=character("escape character", char))
        return self

    def set_line_separator(self, separator: str) -> Self:
        r"""End written lines with this; ``\n``, ``\r`` and ``\r\n`` all end lines that are read."""
        if separator not in ("\n", "\r", "\r\n"):
            message = f"a line separator is \\n, \\r or \\r\\n; got {separator!r}"
            raise InvalidJobError(message)
        self._layout = replace(self._layout, line_delimiter=separator)
        return self

    def set_null_value(self, null_value: str) -> Self:
        """Read cells with exactly this text as None, and write None so."""
        self._layout = replace(self._layout, null_literal=null_value)
        return self

    def disable_quote_char(self) -> Self:
        """Take quotes for letters as any other."""
        self._layout = replace(self._layout, quote=None)
        return self

    def set_quote_char(self, char: str) -> Self:
        """Enclose cells in this character instead of double quotes."""
        self._layout = replace(self._layout, quote=character("quote character", char))
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> Self:
        """Leave out the first line of a file, or the one behind its header."""
        self._skip_first_data_row = skip
        return self

    def set_strict_headers(self, strict: bool = True) -> Self:
        """Refuse a file whose header does not name the columns in their order."""
        self._strict_headers = strict
        return self

    def set_use_header(self, use: bool = True) -> Self:
        """Expect a header in a file that is read, and write one."""
        self._use_header = use
        return self

    def size(self) -> int:
        """Tell how many columns there are."""
        return len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
