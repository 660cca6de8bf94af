"""Rows: records with positions, optional field names, and a row kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

__all__ = ["Row", "RowKind", "rows_of"]


class RowKind(Enum):
    """The kind of change that a row describes."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _SYMBOLS[self]


_SYMBOLS = {
    RowKind.INSERT: "+I",
    RowKind.UPDATE_BEFORE: "-U",
    RowKind.UPDATE_AFTER: "+U",
    RowKind.DELETE: "-D",
}


class Row:
    """A mutable record of fixed length.

    ``Row(1, 2)`` has positions only, ``Row(a=1, b=2)`` also names, and a row of strings is also a
    template: ``Row("a", "b")(1, 2)`` equals ``Row(a=1, b=2)``. Fields are read by index, by name in
    brackets or as attributes, and written in brackets.
    """

    # A row without names leaves `_fields` unset, as in PyFlink: user code checks `hasattr`.
    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: list[str]
    _values: list[Any]
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            message = "a Row takes positional or named values, not both"
            raise ValueError(message)
        if kwargs:
            self._fields = list(kwargs)
            self._values = list(kwargs.values())
        else:
            self._values = list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Create a row of the given kind."""
        row = Row(*args, **kwargs)
        row._row_kind = row_kind
        return row

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the named values as a dict, rows nested in them too if ``recursive``."""
        if not hasattr(self, "_fields"):
            message = f"a Row without field names has no dict: {self!r}"
            raise TypeError(message)
        values = map(_as_plain, self._values) if recursive else iter(self._values)
        return dict(zip(self._fields, values, strict=False))

    def get_row_kind(self) -> RowKind:
        """Return the row kind, ``INSERT`` unless set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the row kind."""
        self._row_kind = row_kind

    def set_field_names(self, field_names: list[str]) -> None:
        """Name the fields."""
        self._fields = field_names

    def get_fields_by_names(self, names: list[str]) -> list[Any]:
        """Return the values in the order of ``names``; all of them if the row has no names."""
        if not hasattr(self, "_fields") or names == self._fields:
            return self._values
        missing = [name for name in names if name not in self._fields]
        if missing:
            message = f"no fields {missing} in {self._fields}"
            raise ValueError(message)
        return [self._values[self._fields.index(name)] for name in names]

    def __call__(self, *args: Any) -> Row:
        """Create a row named by this one's values."""
        if len(args) > len(self):
            message = f"{self!r} makes rows of {len(self)} values; got {args!r}"
            raise ValueError(message)
        return _restore(list(self._values), args, self._row_kind)

    def __contains__(self, item: object) -> bool:
        return item in (self._fields if hasattr(self, "_fields") else self._values)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | slice):
            return self._values[item]
        return self._values[self._fields.index(item)]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, int | slice):
            self._values[key] = value
        elif hasattr(self, "_fields"):
            self._values[self._fields.index(key)] = value
        else:
            raise KeyError(key)

    def __getattr__(self, item: str) -> Any:
        if item.startswith("_") or not hasattr(self, "_fields") or item not in self._fields:
            raise AttributeError(item)
        return self._values[self._fields.index(item)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return False
        return (
            self.__class__ == other.__class__
            and self._row_kind == other._row_kind
            and self._identity() == other._identity()
        )

    def __hash__(self) -> int:
        return hash(tuple(self._identity()[1]))

    def __repr__(self) -> str:
        if hasattr(self, "_fields"):
            pairs = zip(self._fields, self._values, strict=False)
            return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"
        return f"<Row({', '.join(map(repr, self._values))})>"

    def __reduce__(self) -> tuple[Callable[..., Row], tuple[Any, ...]]:
        return _restore, (getattr(self, "_fields", None), tuple(self._values), self._row_kind)

    def _identity(self) -> tuple[list[str] | None, list[Any]]:
        """Names and values, by name where there are names: named rows ignore field order."""
        if not hasattr(self, "_fields"):
            return None, self._values
        names = sorted(self._fields)
        if names == self._fields:
            return names, self._values
        return names, [self._values[self._fields.index(name)] for name in names]


def rows_of(names: Sequence[str], columns: Iterable[Sequence[Any]]) -> list[Row]:
    """Create rows from columns of equal length; the rows share their list of names."""
    fields, make, insert = list(names), Row.__new__, RowKind.INSERT
    rows = []
    for values in zip(*columns, strict=True):
        # Does what __init__ does without its checks, in half the time.
        row = make(Row)
        row._fields = fields
        row._values = list(values)
        row._row_kind = insert
        rows.append(row)
    return rows


def _restore(fields: list[str] | None, values: Sequence[Any], row_kind: RowKind) -> Row:
    row = Row(*values)
    if fields is not None:
        row._fields = fields
    row._row_kind = row_kind
    return row


def _as_plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_as_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_plain(item) for key, item in value.items()}
    return value
