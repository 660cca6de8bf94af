"""Rolling aggregates as reduce functions: sum, min, max and their by-variants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.row import Row
from penstock.datastream.functions import ReduceFunction

Combine = Callable[[Any, Any], Any]


class RollingAggregate(ReduceFunction[Any]):
    """Combines one field and keeps the others of the first record, or chooses whole records."""

    def __init__(self, position: int | str, combine: Combine, whole_record: bool) -> None:
        self._position = position
        self._combine = combine
        self._whole_record = whole_record

    def reduce(self, value1: Any, value2: Any) -> Any:
        """Combine the second record with the first."""
        if not isinstance(value1, (tuple, list, Row)):
            self._check_basic()
            return self._combine(value1, value2)
        old, new = value1[self._position], value2[self._position]  # type: ignore[index]
        chosen = self._combine(old, new)
        if self._whole_record:
            return value1 if chosen is old else value2
        return _with_field(value1, self._position, chosen)

    def _check_basic(self) -> None:
        if self._position != 0:
            message = (
                f"a value that is not a tuple, list or Row has only field 0; got {self._position!r}"
            )
            raise TypeError(message)


def _with_field(record: Any, position: int | str, value: Any) -> Any:
    if isinstance(record, tuple):
        assert isinstance(position, int)
        return (*record[:position], value, *record[position + 1 :])
    record[position] = value
    return record


def add(old: Any, new: Any) -> Any:
    """Return the sum."""
    return old + new


def least(old: Any, new: Any) -> Any:
    """Return the smaller; the older of equals."""
    return new if new < old else old


def greatest(old: Any, new: Any) -> Any:
    """Return the greater; the older of equals."""
    return new if new > old else old
