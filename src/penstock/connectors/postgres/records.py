"""From a record to the values of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.errors import UnsuitableTableError, UnwritableValueError

__all__ = ["columns_of", "values_of"]

Values = Callable[[Any], Sequence[Any]]


def columns_of(
    given: tuple[str, ...] | None, type_info: TypeInformation | None
) -> tuple[str, ...] | None:
    """Tell which columns records fill: those the user named, else the names of the row type.

    None stands for all columns of the table, in its own order.
    """
    if given is not None:
        return given
    if isinstance(type_info, RowTypeInfo) and not _is_unnamed(type_info):
        return type_info.field_names
    return None


def values_of(
    table: str,
    columns: tuple[str, ...] | None,
    type_info: TypeInformation | None,
) -> Values:
    """Make a function that gives a record's values in the order of the columns.

    Rows and dicts with names are read by these, and may hold more than the columns. All else is
    read by position, and must have exactly as many values.
    """
    if columns is None:
        return _all_values
    positions = _positions(table, columns, type_info)
    count = len(columns)
    names = list(columns)

    def values(record: Any) -> Sequence[Any]:
        kind = record.__class__
        found: Sequence[Any]
        if kind is dict:
            found = [record[name] for name in names] if _has(record, names) else ()
        elif kind is Row and positions is None and hasattr(record, "_fields"):
            found = record.get_fields_by_names(names) if _has(record, names) else ()
        elif isinstance(record, Row | tuple | list):
            found = list(record)
            if positions is not None:
                found = [found[at] for at in positions]
        else:
            found = (record,)
        if len(found) != count:
            raise _misfit(record, names)
        return found

    return values


def _positions(
    table: str, columns: tuple[str, ...], type_info: TypeInformation | None
) -> list[int] | None:
    """Tell where a declared row has the columns; None where its order is theirs, or unknown."""
    if not isinstance(type_info, RowTypeInfo) or _is_unnamed(type_info):
        return None
    missing = [name for name in columns if name not in type_info.field_names]
    if missing:
        reason = (
            f"the stream's row type has no field {missing[0]!r}: "
            f"it has {', '.join(type_info.field_names)}"
        )
        raise UnsuitableTableError(table, reason)
    return [type_info.field_names.index(name) for name in columns]


def _is_unnamed(type_info: RowTypeInfo) -> bool:
    return type_info.field_names == RowTypeInfo(type_info.field_types).field_names


def _has(record: Any, names: list[str]) -> bool:
    return all(name in record for name in names)


def _all_values(record: Any) -> Sequence[Any]:
    if isinstance(record, tuple | list):
        return record
    if isinstance(record, Row) and not hasattr(record, "_fields"):
        return list(record)
    if isinstance(record, Row | dict):
        reason = "it has names and the sink does not know the columns; give them to set_columns()"
        raise UnwritableValueError(None, record, reason)
    return (record,)


def _misfit(record: Any, names: list[str]) -> UnwritableValueError:
    if isinstance(record, dict) or hasattr(record, "_fields"):
        missing = next((name for name in names if name not in record), None)
        if missing is not None:
            return UnwritableValueError(missing, record, "the record has no field of that name")
    reason = f"a record needs {len(names)} values ({', '.join(names)})"
    return UnwritableValueError(None, record, reason)
