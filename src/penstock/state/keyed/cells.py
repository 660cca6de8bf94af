"""The write-back cache of states with one stored entry per key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from penstock.datastream.batch_keys import BatchKeys
from penstock.errors import InvalidJobError, TypeMismatchError
from penstock.state.delta import Delta
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.keyed.stored_state import StoredState
from penstock.state.keyed.value_columns import ValueColumn, value_column
from penstock.state.ttl.settings import TtlSettings
from penstock.types.coercion import Coercion
from penstock.types.serializers import Serializer

_PATIENCE = 1024


class CellState(StoredState):
    """A write-back cache with one cell per key of the micro-batch.

    The first access to a key reads and decodes its entry; the last value written is encoded once,
    when the changes are collected. A cell holds None where there is no entry.
    """

    __slots__ = (
        "_coerce",
        "_dirty",
        "_expired_until",
        "_immutable",
        "_loads",
        "_patience",
        "_plain",
        "_read",
        "_sorted_keys",
        "_values",
        "_write",
    )

    _expired_until: int
    """Of a state with a time-to-live: values last accessed then or before have expired."""
    _sorted_keys: list[bytes]
    _values: list[Any]

    def __init__(
        self,
        context: KeyContext,
        name: str,
        serializer: Serializer,
        ttl: TtlSettings | None = None,
    ) -> None:
        super().__init__(context, name, serializer.type_info, ttl)
        self._read: Callable[[bytes], Any] = serializer.decode
        self._coerce = serializer.coerce
        self._plain = serializer.plain
        self._immutable = serializer.immutable
        # A mutable value may have changed since it was checked: it is checked again when written.
        self._write = serializer.write if serializer.immutable else serializer.encode
        self._reset(0)

    def clear(self) -> None:  # noqa: D102
        index = self._context.current
        self._values[index] = None
        self._dirty[index] = 1

    def remove_cells(self, indexes: Sequence[int]) -> list[Any]:
        """Clear the cells of some keys and return their values."""
        removed = []
        for self._context.current in indexes:
            value = self._values[self._context.current]
            removed.append(self._load() if value is UNLOADED else value)
            self.clear()
        return [value for value in removed if value is not None]

    def grow(self, count: int) -> None:  # noqa: D102
        self._sorted_keys = []
        self._values.extend([UNLOADED] * count)
        self._dirty.extend(bytes(count))

    def take_changes(self, delta: Delta) -> None:  # noqa: D102
        written = self._written()
        if not written:
            return
        values, routed, prefix, write = (
            self._values,
            self._context.routed,
            self._prefix,
            self._write,
        )
        kept = [index for index in written if values[index] is not None]
        try:
            delta.values += [write(values[index]) for index in kept]
        except TypeMismatchError:
            self._raise_mismatch(kept)
            raise
        if len(kept) == len(self._sorted_keys):
            delta.keys += self._sorted_keys
        else:
            delta.keys += [prefix + routed[index] for index in kept]
        if len(kept) != len(written):
            delta.deletes += [prefix + routed[index] for index in written if values[index] is None]
        self._dirty = bytearray(len(values))

    def _raise_mismatch(self, indexes: list[int]) -> None:
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
            return sorted(written, key=self._context.routed.__getitem__)
        order = self._context.order()
        if count == len(order):
            return order
        dirty = self._dirty
        return [index for index in order if dirty[index]]

    def _reset(self, count: int) -> None:
        self._values = [UNLOADED] * count
        self._dirty = bytearray(count)
        # All stored keys in order, as soon as they were needed.
        self._sorted_keys = []
        self._loads = 0
        self._patience = _PATIENCE

    def _load(self) -> Any:
        context = self._context
        index = context.current
        data = context.store.get(self._prefix + context.routed[index])
        value = self._values[index] = None if data is None else self._read(data)
        self._loads += 1
        if self._loads == self._patience:
            self._consider_loading_all()
        return value

    def _consider_loading_all(self) -> None:
        """Load all keys at once if most of them will probably be accessed anyway.

        Keys are numbered in the order of their first record, so the share of those accessed so far
        is an estimate. Reading in key order takes a third of the time, and the delta needs the
        order too.
        """
        self._patience *= 2
        if self._loads * 2 > self._context.current and self._loads * 2 < len(self._values):
            self._load_all()

    def _load_all(self) -> None:
        context, values, prefix, read = self._context, self._values, self._prefix, self._read
        order, routed = context.order(), context.routed
        self._sorted_keys = [prefix + routed[index] for index in order]
        found = context.store.get_many(self._sorted_keys)
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
        column = value_column(self.signature)
        if column is None:
            message = (
                f"state {self.name!r} of step {self._context.step!r} holds {self.signature}, which "
                "has no Arrow column: declare a basic type, or a tuple or row of such, or iterate "
                "over the keys with ctx.use_key()"
            )
            raise InvalidJobError(message)
        return column

    def _from_arrow(self, keys: BatchKeys, values: Any) -> list[Any]:
        try:
            converted = self._column().from_arrow(values)
        except (ValueError, TypeError) as error:
            message = (
                f"put_many() on state {self.name!r} of step {self._context.step!r}: the values are "
                f"not of {self.signature}: {error}"
            )
            raise InvalidJobError(message) from error
        if len(converted) != len(keys):
            message = (
                f"put_many() on state {self.name!r} of step {self._context.step!r} takes a value "
                f"for each of the {len(keys)} keys of the batch; it got {len(converted)}"
            )
            raise InvalidJobError(message)
        return converted

    def _coerced(self, value: Any) -> Any:
        """Return the canonical form of a value, None for None."""
        if value is None:
            return None
        try:
            return self._coerce(value)
        except TypeMismatchError as error:
            raise self._named(error, self._context.current) from None

    def _coerced_by(self, coerce: Coercion, value: Any) -> Any:
        try:
            return coerce(value)
        except TypeMismatchError as error:
            raise self._named(error, self._context.current) from None
