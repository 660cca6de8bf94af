"""States with one stored entry per key: the cache all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from penstock.datastream.batch_keys import BatchKeys
from penstock.errors import InvalidJobError, TypeMismatchError
from penstock.state.delta import Delta
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import Serializer
from penstock.state.table import TableState
from penstock.state.value_columns import ValueColumn, value_column

__all__ = ["CellState"]

_PATIENCE = 1024


class CellState(TableState):
    """A write-back cache with one cell per key of the micro-batch.

    The first touch of a key reads and decodes it, the last write is encoded, once, when the
    changes are taken. A cell holds None where there is no entry.
    """

    __slots__ = (
        "_dirty",
        "_fit",
        "_immutable",
        "_loads",
        "_patience",
        "_plain",
        "_read",
        "_sorted_keys",
        "_values",
        "_write",
    )

    _sorted_keys: list[bytes]
    _values: list[Any]

    def __init__(self, scope: KeyScope, name: str, serializer: Serializer) -> None:
        super().__init__(scope, name, serializer.type_info)
        self._read: Callable[[bytes], Any] = serializer.decode
        self._fit = serializer.fit
        self._plain = serializer.plain
        self._immutable = serializer.immutable
        # What can be changed in place may no longer be what was checked when it was put here.
        self._write = serializer.write if serializer.immutable else serializer.encode
        self._reset(0)

    def clear(self) -> None:  # noqa: D102
        index = self._scope.current
        self._values[index] = None
        self._dirty[index] = 1

    def take_away(self, indexes: Sequence[int]) -> list[Any]:
        """Clear some cells and return what was in them, but for those without an entry."""
        taken = []
        for self._scope.current in indexes:
            value = self._values[self._scope.current]
            taken.append(self._load() if value is UNLOADED else value)
            self.clear()
        return [value for value in taken if value is not None]

    def grow(self, count: int) -> None:  # noqa: D102
        self._sorted_keys = []
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
        if len(kept) == len(self._sorted_keys):
            delta.keys += self._sorted_keys
        else:
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
        # All stored keys in order, once something needed them.
        self._sorted_keys = []
        self._loads = 0
        self._patience = _PATIENCE

    def _load(self) -> Any:
        scope = self._scope
        index = scope.current
        data = scope.store.get(self._prefix + scope.routed[index])
        value = self._values[index] = None if data is None else self._read(data)
        self._loads += 1
        if self._loads == self._patience:
            self._consider_loading_all()
        return value

    def _consider_loading_all(self) -> None:
        """Load all keys at once if most of them will be touched anyway.

        Keys are numbered as they come up, so those touched so far among those that came up tell
        what to expect. Reading in key order takes a third of the time, and the order is needed
        again for the delta.
        """
        self._patience *= 2
        if self._loads * 2 > self._scope.current and self._loads * 2 < len(self._values):
            self._load_all()

    def _load_all(self) -> None:
        scope, values, prefix, read = self._scope, self._values, self._prefix, self._read
        order, routed = scope.order(), scope.routed
        self._sorted_keys = [prefix + routed[index] for index in order]
        found = scope.store.get_many(self._sorted_keys)
        for index, data in zip(order, found, strict=True):
            if values[index] is UNLOADED:
                values[index] = None if data is None else read(data)

    def _many(self, keys: BatchKeys) -> list[Any]:
        """Return the cells of all keys of a record batch."""
        if UNLOADED in self._values:
            self._load_all()
        return list(map(self._values.__getitem__, keys.numbers))

    def _put_many(self, keys: BatchKeys, cells: list[Any]) -> None:
        if len(cells) == len(self._values):
            self._values[:] = cells
            self._dirty = bytearray(b"\1" * len(cells))
            return
        for index, cell in zip(keys.numbers, cells, strict=True):
            self._values[index] = cell
            self._dirty[index] = 1

    def _column(self) -> ValueColumn:
        column = value_column(self.type_text)
        if column is None:
            message = (
                f"state {self.name!r} of step {self._scope.step!r} holds {self.type_text}, which "
                "has no Arrow column: declare a basic type, or a tuple or row of such, or go "
                "through the keys with ctx.use_key()"
            )
            raise InvalidJobError(message)
        return column

    def _drained(self, keys: BatchKeys, values: Any) -> list[Any]:
        try:
            drained = self._column().drain(values)
        except (ValueError, TypeError) as error:
            message = (
                f"put_many() on state {self.name!r} of step {self._scope.step!r}: the values are "
                f"not of {self.type_text}: {error}"
            )
            raise InvalidJobError(message) from error
        if len(drained) != len(keys):
            message = (
                f"put_many() on state {self.name!r} of step {self._scope.step!r} takes a value "
                f"for each of the {len(keys)} keys of the batch; it got {len(drained)}"
            )
            raise InvalidJobError(message)
        return drained

    def _fitted(self, value: Any) -> Any:
        """Return a value as its type has it, None for None."""
        if value is None:
            return None
        try:
            return self._fit(value)
        except TypeMismatchError as error:
            raise self._named(error, self._scope.current) from None
