"""The options of a table's descriptor, read one by one; what nobody reads is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from penstock.common.option_kinds import OptionKind
from penstock.errors import InvalidJobError

__all__ = ["TableOptions"]

T = TypeVar("T")
D = TypeVar("D")


class TableOptions:
    """What a table was given."""

    def __init__(self, table: str, given: Mapping[str, str]) -> None:
        self.table = table
        self._given = given
        self._read: list[str] = []

    def read(self, key: str, kind: OptionKind[T], default: D) -> T | D:
        """Return the value of an option, its default if it was not given."""
        self._read.append(key)
        if key not in self._given:
            return default
        try:
            return kind.parse(self._given[key])
        except (ValueError, OverflowError) as error:
            raise self.misfit(key, kind.expected) from error

    def required(self, key: str, kind: OptionKind[T]) -> T:
        """Return the value of an option that must be given."""
        value = self.read(key, kind, None)
        if value is None:
            raise self.misfit(key, kind.expected)
        return value

    def misfit(self, key: str, expected: str) -> InvalidJobError:
        """Return the error that says what the value of an option has to be."""
        got = f"; got {self._given[key]!r}" if key in self._given else ""
        return InvalidJobError(f"table {self.table!r}: option {key!r} must be {expected}{got}")

    def refuse_the_rest(self) -> None:
        """Raise an error if an option was given that nobody read."""
        for key in self._given:
            if key not in self._read:
                known = ", ".join(self._read)
                message = (
                    f"table {self.table!r} has no option {key!r}: leave it out; it has {known}"
                )
                raise InvalidJobError(message)
