"""States with one stored entry per key that expires as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.batch_keys import BatchKeys
from penstock.datastream.state import AggregatingState, RawState, ReducingState, ValueState
from penstock.errors import TypeMismatchError
from penstock.state.aggregating_state import KeyedAggregatingState
from penstock.state.cells import CellState
from penstock.state.lifetime import Lifetime
from penstock.state.raw_state import KeyedRawState
from penstock.state.reducing_state import KeyedReducingState
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import Serializer, serializer_for
from penstock.state.stamps import STAMP
from penstock.state.value_state import KeyedValueState

__all__ = [
    "ExpiringAggregatingState",
    "ExpiringCellState",
    "ExpiringRawState",
    "ExpiringReducingState",
    "ExpiringValueState",
]


class ExpiringCellState(CellState):
    """A cell holds a value with its stamp, a pair, or None where there is no entry."""

    __slots__ = ("_dead", "lifetime")

    lifetime: Lifetime

    def __init__(
        self, scope: KeyScope, name: str, serializer: Serializer, lifetime: Lifetime
    ) -> None:
        self.lifetime = lifetime
        super().__init__(scope, name, serializer)
        self._store_stamped(self._read, self._write)

    def _touched(self) -> int:
        return len(self._values) - self._values.count(UNLOADED)

    def _store_stamped(self, read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> None:
        unpack, pack, size = STAMP.unpack_from, STAMP.pack, STAMP.size
        self._read = lambda data: (unpack(data)[0], read(data[size:]))
        self._write = lambda cell: pack(cell[0]) + write(cell[1])

    def _reset(self, count: int) -> None:
        super()._reset(count)
        # What is stamped no later than this has expired.
        self._dead = self._scope.now - self.lifetime.millis

    def _cell(self) -> tuple[int, Any] | None:
        cell = self._values[self._scope.current]
        if cell is UNLOADED:
            cell = self._load()
        held: tuple[int, Any] | None = cell
        return held

    def _shown(self) -> Any:
        """Return what a reader may see, None for nothing, and treat the value as read."""
        cell = self._cell()
        if cell is None:
            return None
        stamp, value = cell
        if stamp <= self._dead:
            self.clear()
            return value if self.lifetime.shows_expired else None
        if self.lifetime.on_read and stamp != self._scope.now:
            self._put(value)
        return value

    def _held(self) -> Any:
        """Return what the next value is combined with, None for nothing."""
        cell = self._cell()
        if cell is None or (cell[0] <= self._dead and not self.lifetime.shows_expired):
            return None
        return cell[1]

    def _put(self, value: Any) -> None:
        index = self._scope.current
        self._values[index] = None if value is None else (self._scope.now, value)
        self._dirty[index] = 1


class ExpiringValueState(ExpiringCellState, ValueState[Any]):
    """A value per key, for a time."""

    __slots__ = ()

    kind = KeyedValueState.kind

    def value(self) -> Any:  # noqa: D102
        return self._shown()

    def update(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain:
            value = self._fitted(value)
        self._put(value)

    def get_many(self, keys: BatchKeys) -> pa.Array:  # noqa: D102
        self._many(keys)
        scope, before, shown = self._scope, self._scope.current, []
        for scope.current in keys.numbers:
            shown.append(self._shown())
        scope.current = before
        return self._column().fill(shown)

    def put_many(self, keys: BatchKeys, values: Any) -> None:  # noqa: D102
        now, drained = self._scope.now, self._drained(keys, values)
        self._put_many(keys, [None if value is None else (now, value) for value in drained])


class ExpiringReducingState(ExpiringCellState, ReducingState[Any]):
    """A value per key, combined with each new one, for a time; None clears it, as in Flink."""

    __slots__ = ("_reduce",)

    kind = KeyedReducingState.kind

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        serializer: Serializer,
        reduce: Callable[[Any, Any], Any],
        lifetime: Lifetime,
    ) -> None:
        super().__init__(scope, name, serializer, lifetime)
        self._reduce = reduce

    def get(self) -> Any:  # noqa: D102
        return self._shown()

    def add(self, value: Any) -> None:  # noqa: D102
        held = self._held()
        if held is not None and value is not None:
            value = self._reduce(held, value)
        if value.__class__ is not self._plain:
            value = self._fitted(value)
        self._put(value)


class ExpiringAggregatingState(ExpiringCellState, AggregatingState[Any, Any]):
    """An accumulator per key, for a time; adding None clears it, as in Flink."""

    __slots__ = ("_function",)

    kind = KeyedAggregatingState.kind

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        serializer: Serializer,
        function: Any,
        lifetime: Lifetime,
    ) -> None:
        super().__init__(scope, name, serializer, lifetime)
        self._function = function

    def get(self) -> Any:  # noqa: D102
        held = self._shown()
        return None if held is None else self._function.get_result(held)

    def add(self, value: Any) -> None:  # noqa: D102
        if value is None:
            self.clear()
            return
        held = self._held()
        if held is None:
            held = self._function.create_accumulator()
        held = self._function.add(value, held)
        if held.__class__ is not self._plain:
            held = self._fitted(held)
        self._put(held)


class ExpiringRawState(ExpiringCellState, RawState):
    """Bytes per key, for a time."""

    __slots__ = ()

    kind = KeyedRawState.kind

    def __init__(
        self, scope: KeyScope, name: str, type_info: TypeInformation, lifetime: Lifetime
    ) -> None:
        super().__init__(scope, name, serializer_for(type_info), lifetime)
        self._store_stamped(_untouched, _untouched)

    def get(self) -> bytes | None:  # noqa: D102
        shown: bytes | None = self._shown()
        return shown

    def set(self, value: bytes) -> None:  # noqa: D102
        try:
            value = self._fit(value)
        except TypeMismatchError as error:
            raise self._named(error, self._scope.current) from None
        self._put(value)


def _untouched(value: Any) -> Any:
    return value
