"""The options of a table descriptor; options that are never read are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from penstock.common.config.option_kinds import OptionKind
from penstock.errors import InvalidJobError

T = TypeVar("T")
D = TypeVar("D")


class TableOptions:
    """The options of a table."""

    def __init__(self, table: str, values: Mapping[str, str]) -> None:
        self.table = table
        self._values = values
        self._read: list[str] = []

    def read(self, key: str, kind: OptionKind[T], default: D) -> T | D:
        """Return the value of an option, or its default."""
        self._read.append(key)
        if key not in self._values:
            return default
        try:
            return kind.parse(self._values[key])
        except (ValueError, OverflowError) as error:
            raise self.invalid(key, kind.expected) from error

    def required(self, key: str, kind: OptionKind[T]) -> T:
        """Return the value of a required option."""
        value = self.read(key, kind, None)
        if value is None:
            raise self.invalid(key, kind.expected)
        return value

    def invalid(self, key: str, expected: str) -> InvalidJobError:
        """Return the error for a missing or invalid value."""
        got = f"; got {self._values[key]!r}" if key in self._values else ""
        return InvalidJobError(f"table {self.table!r}: option {key!r} must be {expected}{got}")

    def check_all_read(self) -> None:
        """Raise an error for an option that was not read."""
        for key in self._values:
            if key not in self._read:
                known = ", ".join(self._read)
                message = f"table {self.table!r} has no option {key!r}: remove it; it has {known}"
                raise InvalidJobError(message)
