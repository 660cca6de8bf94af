"""States with one stored entry per key: the cache all of them share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

from penstock.errors import TypeMismatchError
from penstock.state.delta import Delta
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import Serializer
from penstock.state.table import TableState

__all__ = ["CellState"]


class CellState(TableState):
    """A write-back cache with one cell per key of the micro-batch.

    The first touch of a key reads and decodes it, the last write is encoded, once, when the
    changes are taken. A cell holds None where there is no entry.
    """

    __slots__ = ("_dirty", "_fit", "_plain", "_read", "_values", "_write")

    def __init__(self, scope: KeyScope, name: str, serializer: Serializer) -> None:
        super().__init__(scope, name, repr(serializer.type_info))
        self._read: Callable[[bytes], Any] = serializer.decode
        self._fit = serializer.fit
        self._plain = serializer.plain
        # What can be changed in place may no longer be what was checked when it was put here.
        self._write = serializer.write if serializer.immutable else serializer.encode
        self._values: list[Any] = []
        self._dirty = bytearray()

    def clear(self) -> None:  # noqa: D102
        index = self._scope.current
        self._values[index] = None
        self._dirty[index] = 1

    def grow(self, count: int) -> None:  # noqa: D102
        self._values.extend([UNLOADED] * count)
        self._dirty.extend(bytes(count))

    def take_changes(self, delta: Delta) -> None:  # noqa: D102
        written = self._written()
        if not written:
            return
        values, routed, prefix, write = self._values, self._scope.routed, self._prefix, self._write
        kept = [index for index in written if values[index] is not None]
        try:
            delta.values += [write(values[index]) for index in kept]
        except TypeMismatchError:
            self._blame(kept)
            raise
        delta.keys += [prefix + routed[index] for index in kept]
        if len(kept) != len(written):
            delta.deletes += [prefix + routed[index] for index in written if values[index] is None]
        self._dirty = bytearray(len(values))

    def _blame(self, indexes: list[int]) -> None:
        """Raise for the first value that cannot be written."""
        for index in indexes:
            try:
                self._write(self._values[index])
            except TypeMismatchError as error:
                raise self._named(error, index) from error

    def _written(self) -> list[int]:
        count = self._dirty.count(1)
        if not count:
            return []
        if count * 4 < len(self._dirty):
            written = compress(range(len(self._dirty)), self._dirty)
            return sorted(written, key=self._scope.routed.__getitem__)
        order = self._scope.order()
        if count == len(order):
            return order
        dirty = self._dirty
        return [index for index in order if dirty[index]]

    def _reset(self, count: int) -> None:
        self._values = [UNLOADED] * count
        self._dirty = bytearray(count)

    def _load(self) -> Any:
        scope = self._scope
        index = scope.current
        data = scope.store.get(self._prefix + scope.routed[index])
        value = self._values[index] = None if data is None else self._read(data)
        return value

    def _fitted(self, value: Any) -> Any:
        """Return a value as its type has it, None for None."""
        if value is None:
            return None
        try:
            return self._fit(value)
        except TypeMismatchError as error:
            raise self._named(error, self._scope.current) from None
