"""List state whose elements expire one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListState
from penstock.errors import TypeMismatchError
from penstock.state.expiring_cells import ExpiringCellState
from penstock.state.lifetime import Lifetime
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import serializer_for
from penstock.state.stamps import split_stamps, stamped
from penstock.state.table import LIST_STATE

__all__ = ["ExpiringListState"]

_Element = tuple[int, Any]


class ExpiringListState(ExpiringCellState, ListState[Any]):
    """A list per key, stored as one entry; its cell is a list of stamps with their elements."""

    __slots__ = ("_fit_element", "_plain_element")

    kind = LIST_STATE

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        type_info: TypeInformation,
        element_type_info: TypeInformation,
        lifetime: Lifetime,
    ) -> None:
        serializer = serializer_for(type_info)
        element = serializer_for(element_type_info)
        self._fit_element = element.fit
        self._plain_element = element.plain
        super().__init__(scope, name, serializer, lifetime)
        write = serializer.write if element.immutable else serializer.encode
        self._store_stamped(serializer.decode, write)

    def get(self) -> list[Any]:  # noqa: D102
        held = self._elements()
        if held is None:
            return []
        alive = [element for element in held if element[0] > self._dead]
        lives = self.lifetime
        shown = [value for _, value in (held if lives.shows_expired else alive)]
        if not alive:
            self.clear()
        elif lives.on_read and any(stamp != self._scope.now for stamp, _ in held):
            self._keep([(self._scope.now, value) for _, value in alive])
        elif len(alive) < len(held) and not lives.shows_expired:
            self._keep(alive)
        return shown

    def add(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain_element:
            value = self._fitted_element(value)
        held = self._elements() or []
        if held and held[0][0] <= self._dead and not self.lifetime.shows_expired:
            held = [element for element in held if element[0] > self._dead]
        held.append((self._scope.now, value))
        self._keep(held)

    def add_all(self, values: Iterable[Any]) -> None:  # noqa: D102
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        now = self._scope.now
        new = [(now, self._fitted_element(value)) for value in values]
        self._keep(new or None)

    def _store_stamped(self, read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> None:
        def read_cell(data: bytes) -> list[_Element]:
            stamps, body = split_stamps(data, LIST_STATE)
            return list(zip(stamps, read(body), strict=True))

        def write_cell(cell: list[_Element]) -> bytes:
            body = write([value for _, value in cell])
            return stamped([stamp for stamp, _ in cell], body, LIST_STATE)

        self._read, self._write = read_cell, write_cell

    def _elements(self) -> list[_Element] | None:
        cell = self._values[self._scope.current]
        held: list[_Element] | None = self._load() if cell is UNLOADED else cell
        return held

    def _keep(self, elements: list[_Element] | None) -> None:
        index = self._scope.current
        self._values[index] = elements
        self._dirty[index] = 1

    def _fitted_element(self, value: Any) -> Any:
        try:
            return self._fit_element(value)
        except TypeMismatchError as error:
            raise self._named(error, self._scope.current) from None
