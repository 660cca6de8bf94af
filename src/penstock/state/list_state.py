"""List state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListState
from penstock.errors import TypeMismatchError
from penstock.state.cells import CellState
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import serializer_for
from penstock.state.table import LIST_STATE

__all__ = ["KeyedListState"]


class KeyedListState(CellState, ListState[Any]):
    """A list per key, stored as one entry.

    The list in the cell belongs to the state alone: what comes in and goes out is copied.
    """

    __slots__ = ("_fit_element", "_plain_element")

    kind = LIST_STATE

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        type_info: TypeInformation,
        element_type_info: TypeInformation,
    ) -> None:
        serializer = serializer_for(type_info)
        super().__init__(scope, name, serializer)
        element = serializer_for(element_type_info)
        self._fit_element = element.fit
        self._plain_element = element.plain
        if element.immutable:
            self._write = serializer.write

    def get(self) -> list[Any]:  # noqa: D102
        return list(self._held() or ())

    def add(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain_element:
            value = self._fitted_element(value)
        held = self._held()
        index = self._scope.current
        if held is None:
            self._values[index] = [value]
        else:
            held.append(value)
        self._dirty[index] = 1

    def add_all(self, values: Iterable[Any]) -> None:  # noqa: D102
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        new = [self._fitted_element(value) for value in values]
        index = self._scope.current
        self._values[index] = new or None
        self._dirty[index] = 1

    def merge(self, target: int, sources: Sequence[int]) -> None:
        """Append the lists of other places to that of one, and clear the others."""
        for values in self.take_away(sources):
            self._scope.current = target
            held = self._held()
            self._values[target] = values if held is None else held + values
            self._dirty[target] = 1

    def _held(self) -> list[Any] | None:
        held: list[Any] | None = self._values[self._scope.current]
        return self._load() if held is UNLOADED else held

    def _fitted_element(self, value: Any) -> Any:
        try:
            return self._fit_element(value)
        except TypeMismatchError as error:
            raise self._named(error, self._scope.current) from None
