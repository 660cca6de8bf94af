"""List state whose elements expire one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.state.keyed.list_state import KeyedListState
from penstock.state.registry.meta_info import LIST_STATE
from penstock.state.ttl.cells import TtlCells
from penstock.state.ttl.timestamps import split_timestamps, with_timestamps

_Element = tuple[int, Any]


class TtlListState(TtlCells, KeyedListState):
    """A list per key, stored as one entry; its cell is a list of timestamps with their elements."""

    __slots__ = ()

    def get(self) -> list[Any]:  # noqa: D102
        held: list[_Element] | None = self._held()
        if held is None:
            return []
        alive = [element for element in held if element[0] > self._expired_until]
        ttl = self.ttl
        visible = [value for _, value in (held if ttl.shows_expired else alive)]
        if not alive:
            self.clear()
        elif ttl.on_read and any(timestamp != self._context.now for timestamp, _ in held):
            self._put_elements([(self._context.now, value) for _, value in alive])
        elif len(alive) < len(held) and not ttl.shows_expired:
            self._put_elements(alive)
        return visible

    def add(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain_element:
            value = self._coerced_by(self._coerce_element, value)
        held = self._held() or []
        if held and held[0][0] <= self._expired_until and not self.ttl.shows_expired:
            held = [element for element in held if element[0] > self._expired_until]
        held.append((self._context.now, value))
        self._put_elements(held)

    def update(self, values: Iterable[Any]) -> None:  # noqa: D102
        now = self._context.now
        new = [(now, self._coerced_by(self._coerce_element, value)) for value in values]
        self._put_elements(new or None)

    def _store_timestamps(
        self, read: Callable[[bytes], Any], write: Callable[[Any], bytes]
    ) -> None:
        def read_cell(data: bytes) -> list[_Element]:
            timestamps, body = split_timestamps(data, LIST_STATE)
            return list(zip(timestamps, read(body), strict=True))

        def write_cell(cell: list[_Element]) -> bytes:
            body = write([value for _, value in cell])
            return with_timestamps([timestamp for timestamp, _ in cell], body, LIST_STATE)

        self._read, self._write = read_cell, write_cell

    def _put_elements(self, elements: list[_Element] | None) -> None:
        index = self._context.current
        self._values[index] = elements
        self._dirty[index] = 1
