"""Reads the values of a table's columns from records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.row import Row
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.errors import UnsuitableTableError, UnwritableValueError

_names_of = Row.__dict__["_fields"].__get__  # unlike hasattr, this never calls __getattr__

_INTEGERS = (BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT)
_CLASSES = {**dict.fromkeys(_INTEGERS, int), BasicType.DOUBLE: float}


class RecordReader:
    """Reads the values of some columns from records of a type.

    ``columns`` are those the user named, else the fields of the row type; None means all columns
    of the table in order. Rows and dicts with names are read by name, and may have further fields.
    All other records are read by position, and must have as many values.
    """

    def __init__(
        self, table: str, columns: tuple[str, ...] | None, type_info: TypeInformation | None
    ) -> None:
        fields: list[str] | None = None
        if isinstance(type_info, RowTypeInfo) and not _is_unnamed(type_info):
            fields = type_info.get_field_names()
            columns = columns or type_info.field_names
            missing = [name for name in columns if name not in fields]
            if missing:
                reason = f"the row type has no field {missing[0]!r}, only {', '.join(fields)}"
                raise UnsuitableTableError(table, reason)
        self.columns = columns
        self._fields = fields or (None if columns is None else list(columns))
        self._width = None if self._fields is None else len(self._fields)
        self.classes = _classes(type_info)

    def positions(self, width: int) -> list[int]:
        """Return the positions of the columns among the values of a record."""
        if self.columns is None or self._fields is None:
            return list(range(width))
        return [self._fields.index(name) for name in self.columns]

    def takes(self, width: int) -> bool:
        """Return whether a record may have this many values."""
        return self._width is None or self._width == width

    def values(self, record: Any) -> Sequence[Any]:
        """Return a record's values, in the order that `positions` refers to.

        Raises `UnwritableValueError` for a record with another number of values.
        """
        kind = record.__class__
        found: Sequence[Any]
        if kind is tuple:
            found = record
        elif kind is Row:
            found = record._values
            try:
                if _names_of(record) != self._fields:
                    found = self._by_names(record)
            except AttributeError:
                pass
        elif kind is dict:
            found = self._by_names(record)
        elif isinstance(record, tuple | list):
            found = record
        else:
            found = (record,)
        if len(found) != self._width:
            self._check_width(record, len(found))
        return found

    def _by_names(self, record: Any) -> list[Any]:
        if self._fields is None:
            reason = "it has field names, but the sink has no columns; call set_columns()"
            raise UnwritableValueError(None, record, reason)
        missing = [name for name in self._fields if name not in record]
        if missing:
            reason = "the record has no field of that name"
            raise UnwritableValueError(missing[0], record, reason)
        return [record[name] for name in self._fields]

    def _check_width(self, record: Any, width: int) -> None:
        if self._width is None and width:
            self._width = width
            return
        needed = f"{self._width} values"
        if self._fields is not None:
            needed += f" ({', '.join(self._fields)})"
        raise UnwritableValueError(None, record, f"a record needs {needed}; this one has {width}")


def _is_unnamed(type_info: RowTypeInfo) -> bool:
    return type_info.field_names == RowTypeInfo(type_info.field_types).field_names


def _classes(type_info: TypeInformation | None) -> dict[int, type]:
    if not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return {}
    return {
        at: _CLASSES[field.kind]
        for at, field in enumerate(type_info.field_types)
        if isinstance(field, BasicTypeInfo) and field.kind in _CLASSES
    }
