"""States with one entry per key that expires as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from penstock.datastream.batch_keys import BatchKeys
from penstock.state.keyed.aggregating_state import KeyedAggregatingState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED
from penstock.state.keyed.raw_state import KeyedRawState
from penstock.state.keyed.reducing_state import KeyedReducingState
from penstock.state.keyed.value_state import KeyedValueState
from penstock.state.ttl.settings import TtlSettings
from penstock.state.ttl.timestamps import TIMESTAMP


class TtlCells(CellState):
    """A mixin that keeps each value in its cell with the time of its last access.

    A cell is a pair of timestamp and value, or None where there is no entry. Such states cannot be
    merged, which only the states of windows are.
    """

    __slots__ = ()

    ttl: TtlSettings

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._store_timestamps(self._read, self._write)

    def remove_cells(self, indexes: Sequence[int]) -> NoReturn:
        """Not supported."""
        raise NotImplementedError

    def _touched(self) -> int:
        return len(self._values) - self._values.count(UNLOADED)

    def _store_timestamps(
        self, read: Callable[[bytes], Any], write: Callable[[Any], bytes]
    ) -> None:
        unpack, pack, size = TIMESTAMP.unpack_from, TIMESTAMP.pack, TIMESTAMP.size
        self._read = lambda data: (unpack(data)[0], read(data[size:]))
        self._write = lambda cell: pack(cell[0]) + write(cell[1])

    def _reset(self, count: int) -> None:
        super()._reset(count)
        self._expired_until = self._context.now - self.ttl.millis

    def _cell(self) -> Any:
        cell = self._values[self._context.current]
        return self._load() if cell is UNLOADED else cell

    def _visible(self) -> Any:
        """Return what a reader may see, None for nothing; this counts as an access."""
        cell = self._cell()
        if cell is None:
            return None
        timestamp, value = cell
        if timestamp <= self._expired_until:
            self.clear()
            return value if self.ttl.shows_expired else None
        if self.ttl.on_read and timestamp != self._context.now:
            self._put(value)
        return value

    def _combinable(self) -> Any:
        """Return the value that the next one is combined with, None for nothing."""
        cell = self._cell()
        if cell is None or (cell[0] <= self._expired_until and not self.ttl.shows_expired):
            return None
        return cell[1]

    def _put(self, value: Any) -> None:
        index = self._context.current
        self._values[index] = None if value is None else (self._context.now, value)
        self._dirty[index] = 1


class TtlValueState(TtlCells, KeyedValueState):
    """A value per key that expires."""

    __slots__ = ()

    def value(self) -> Any:  # noqa: D102
        return self._visible()

    def update(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain:
            value = self._coerced(value)
        self._put(value)

    def get_many(self, keys: BatchKeys) -> pa.Array:  # noqa: D102
        self._many(keys)
        context, before, visible = self._context, self._context.current, []
        for context.current in keys.numbers:
            visible.append(self._visible())
        context.current = before
        return self._column().to_arrow(visible)

    def put_many(self, keys: BatchKeys, values: Any) -> None:  # noqa: D102
        now, converted = self._context.now, self._from_arrow(keys, values)
        self._put_many(keys, [None if value is None else (now, value) for value in converted])


class TtlReducingState(TtlCells, KeyedReducingState):
    """A value per key, combined with each new one, that expires; None clears it, as in Flink."""

    __slots__ = ()

    def get(self) -> Any:  # noqa: D102
        return self._visible()

    def add(self, value: Any) -> None:  # noqa: D102
        held = self._combinable()
        if held is not None and value is not None:
            value = self._reduce(held, value)
        if value.__class__ is not self._plain:
            value = self._coerced(value)
        self._put(value)


class TtlAggregatingState(TtlCells, KeyedAggregatingState):
    """An accumulator per key that expires; adding None clears it, as in Flink."""

    __slots__ = ()

    def get(self) -> Any:  # noqa: D102
        held = self._visible()
        return None if held is None else self._function.get_result(held)

    def add(self, value: Any) -> None:  # noqa: D102
        if value is None:
            self.clear()
            return
        held = self._combinable()
        if held is None:
            held = self._function.create_accumulator()
        held = self._function.add(value, held)
        if held.__class__ is not self._plain:
            held = self._coerced(held)
        self._put(held)


class TtlRawState(TtlCells, KeyedRawState):
    """Bytes per key that expire."""

    __slots__ = ()

    def get(self) -> bytes | None:  # noqa: D102
        visible: bytes | None = self._visible()
        return visible

    def set(self, value: bytes) -> None:  # noqa: D102
        self._put(self._coerced_by(self._coerce, value))
