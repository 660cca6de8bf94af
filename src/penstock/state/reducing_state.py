"""Reducing state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.datastream.state import ReducingState
from penstock.state.cells import CellState
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import Serializer

__all__ = ["KeyedReducingState"]


class KeyedReducingState(CellState, ReducingState[Any]):
    """A value per key, combined with each new one; None clears it, as in Flink."""

    __slots__ = ("_reduce",)

    kind = "reducing state"

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        serializer: Serializer,
        reduce: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(scope, name, serializer)
        self._reduce = reduce

    def get(self) -> Any:  # noqa: D102
        value = self._values[self._scope.current]
        return self._load() if value is UNLOADED else value

    def add(self, value: Any) -> None:  # noqa: D102
        index = self._scope.current
        held = self._values[index]
        if held is UNLOADED:
            held = self._load()
        if held is not None and value is not None:
            value = self._reduce(held, value)
        if value.__class__ is not self._plain:
            value = self._fitted(value)
        self._values[index] = value
        self._dirty[index] = 1

    def add_all(self, values: Iterable[Any]) -> bool:
        """Add many values, touching the cell once; tell whether there was nothing before."""
        index = self._scope.current
        held = self._values[index]
        if held is UNLOADED:
            held = self._load()
        was_empty = held is None
        reduce, plain, immutable = self._reduce, self._plain, self._immutable
        for value in values:
            before = held
            held = value if held is None or value is None else reduce(held, value)
            # What was held fits: a highest or latest value stays for many records.
            if held.__class__ is not plain and not (immutable and held is before):
                held = self._fitted(held)
        self._values[index] = held
        self._dirty[index] = 1
        return was_empty

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Put the values of other places together with that of one, and clear the others."""
        for value in self.take_away(sources):
            self._scope.current = target
            self.add(value)
