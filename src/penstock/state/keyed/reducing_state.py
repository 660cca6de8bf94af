"""Reducing state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.datastream.state import ReducingState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.ttl.settings import TtlSettings
from penstock.types.serializers import Serializer


class KeyedReducingState(CellState, ReducingState[Any]):
    """A value per key, combined with each new one; None clears it, as in Flink."""

    __slots__ = ("_reduce",)

    kind = "reducing state"

    def __init__(
        self,
        context: KeyContext,
        name: str,
        serializer: Serializer,
        reduce: Callable[[Any, Any], Any],
        ttl: TtlSettings | None = None,
    ) -> None:
        super().__init__(context, name, serializer, ttl)
        self._reduce = reduce

    def get(self) -> Any:  # noqa: D102
        value = self._values[self._context.current]
        return self._load() if value is UNLOADED else value

    def add(self, value: Any) -> None:  # noqa: D102
        index = self._context.current
        held = self._values[index]
        if held is UNLOADED:
            held = self._load()
        if held is not None and value is not None:
            value = self._reduce(held, value)
        if value.__class__ is not self._plain:
            value = self._coerced(value)
        self._values[index] = value
        self._dirty[index] = 1

    def add_all(self, values: Iterable[Any]) -> bool:
        """Add many values, touching the cell once; return whether it was empty before."""
        index = self._context.current
        held = self._values[index]
        if held is UNLOADED:
            held = self._load()
        was_empty = held is None
        reduce, plain, immutable = self._reduce, self._plain, self._immutable
        for value in values:
            before = held
            held = value if held is None or value is None else reduce(held, value)
            # The value before is canonical: a maximum or latest value stays for many records.
            if held.__class__ is not plain and not (immutable and held is before):
                held = self._coerced(held)
        self._values[index] = held
        self._dirty[index] = 1
        return was_empty

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Merge the values of other keys into that of one key, and clear the others."""
        for value in self.remove_cells(sources):
            self._context.current = target
            self.add(value)
