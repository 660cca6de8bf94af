"""List state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.registry.meta_info import LIST_STATE
from penstock.state.ttl.settings import TtlSettings
from penstock.types.serializers import serializer_for


class KeyedListState(CellState, ListState[Any]):
    """A list per key, stored as one entry.

    The list in a cell is never shared with the program: lists are copied on the way in and out.
    """

    __slots__ = ("_coerce_element", "_plain_element")

    kind = LIST_STATE

    def __init__(
        self,
        context: KeyContext,
        name: str,
        type_info: TypeInformation,
        element_type_info: TypeInformation,
        ttl: TtlSettings | None = None,
    ) -> None:
        serializer = serializer_for(type_info)
        super().__init__(context, name, serializer, ttl)
        element = serializer_for(element_type_info)
        self._coerce_element = element.coerce
        self._plain_element = element.plain
        if element.immutable:
            self._write = serializer.write

    def get(self) -> list[Any]:  # noqa: D102
        return list(self._held() or ())

    def add(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain_element:
            value = self._coerced_by(self._coerce_element, value)
        held = self._held()
        index = self._context.current
        if held is None:
            self._values[index] = [value]
        else:
            held.append(value)
        self._dirty[index] = 1

    def add_all(self, values: Iterable[Any]) -> None:  # noqa: D102
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        new = [self._coerced_by(self._coerce_element, value) for value in values]
        index = self._context.current
        self._values[index] = new or None
        self._dirty[index] = 1

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Append the lists of other keys to that of one key, and clear the others."""
        for values in self.remove_cells(sources):
            self._context.current = target
            held = self._held()
            self._values[target] = values if held is None else held + values
            self._dirty[target] = 1

    def _held(self) -> list[Any] | None:
        held: list[Any] | None = self._values[self._context.current]
        return self._load() if held is UNLOADED else held
