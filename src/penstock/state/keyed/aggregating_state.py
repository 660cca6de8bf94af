"""Aggregating state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.datastream.state import AggregatingState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.ttl.settings import TtlSettings
from penstock.types.serializers import Serializer


class KeyedAggregatingState(CellState, AggregatingState[Any, Any]):
    """An accumulator per key; adding None clears it, as in Flink."""

    __slots__ = ("_function",)

    kind = "aggregating state"

    def __init__(
        self,
        context: KeyContext,
        name: str,
        serializer: Serializer,
        function: Any,
        ttl: TtlSettings | None = None,
    ) -> None:
        super().__init__(context, name, serializer, ttl)
        self._function = function

    def get(self) -> Any:  # noqa: D102
        held = self._accumulator()
        return None if held is None else self._function.get_result(held)

    def add(self, value: Any) -> None:  # noqa: D102
        if value is None:
            self.clear()
            return
        held = self._accumulator()
        if held is None:
            held = self._function.create_accumulator()
        held = self._function.add(value, held)
        if held.__class__ is not self._plain:
            held = self._coerced(held)
        index = self._context.current
        self._values[index] = held
        self._dirty[index] = 1

    def add_all(self, values: Iterable[Any]) -> bool:
        """Add many values, touching the cell once; return whether it was empty before."""
        held = self._accumulator()
        was_empty = held is None
        function, plain = self._function, self._plain
        add = function.add
        for value in values:
            if value is None:
                held = None
                continue
            held = add(value, function.create_accumulator() if held is None else held)
            if held.__class__ is not plain:
                held = self._coerced(held)
        index = self._context.current
        self._values[index] = held
        self._dirty[index] = 1
        return was_empty

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Merge the accumulators of other keys into that of one key, and clear the others."""
        for other in self.remove_cells(sources):
            self._context.current = target
            held = self._accumulator()
            if held is not None:
                other = self._function.merge(held, other)
            self._values[target] = self._coerced(other)
            self._dirty[target] = 1

    def _accumulator(self) -> Any:
        held = self._values[self._context.current]
        return self._load() if held is UNLOADED else held
