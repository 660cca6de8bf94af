"""The columns of a table."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.errors import InvalidJobError
from penstock.table.no_table_api import ExplainsMissingTableApi
from penstock.table.types import DataTypes, RowField

__all__ = ["Schema"]


@dataclass(frozen=True, slots=True)
class Schema(ExplainsMissingTableApi):
    """The columns of a table; `row_type` is the type of its stream."""

    row_type: RowTypeInfo

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Create a builder."""
        return Schema.Builder()

    class Builder(ExplainsMissingTableApi):
        """Builds a schema."""

        def __init__(self) -> None:
            self._columns: list[RowField] = []

        def column(self, column_name: str, data_type: TypeInformation) -> Schema.Builder:
            """Add a column of one of `DataTypes`."""
            if not isinstance(data_type, TypeInformation):
                message = (
                    f"column {column_name!r} needs a type such as DataTypes.INT(); "
                    f"got {data_type!r}"
                )
                raise InvalidJobError(message)
            if any(column.name == column_name for column in self._columns):
                message = f"column {column_name!r} exists already: use another name"
                raise InvalidJobError(message)
            self._columns.append(DataTypes.FIELD(column_name, data_type))
            return self

        def build(self) -> Schema:
            """Return the schema."""
            if not self._columns:
                message = "a schema needs columns: add each with column(name, type)"
                raise InvalidJobError(message)
            return Schema(DataTypes.ROW(self._columns))
