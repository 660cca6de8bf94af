"""Map state whose entries expire one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.state.keyed.map_state import ABSENT, KeyedMapState
from penstock.state.ttl.settings import TtlSettings
from penstock.state.ttl.timestamps import TIMESTAMP


class TtlMapState(KeyedMapState):
    """A map per key whose entries expire; its cache holds pairs of timestamp and value."""

    __slots__ = ("_expired_until",)

    ttl: TtlSettings

    def put(self, key: Any, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain and value is not None:
            value = self._coerced(key, value)
        self._put_entry(self._code(key), (self._context.now, value))

    def is_empty(self) -> bool:  # noqa: D102
        if self.ttl.shows_expired:
            return super().is_empty()
        # This does not count as an access to the entries.
        return all(timestamp <= self._expired_until for _, (timestamp, _) in super()._present())

    def _touched(self) -> int:
        return len(self._maps)

    def _reset(self, count: int) -> None:
        super()._reset(count)
        self._expired_until = self._context.now - self.ttl.millis

    def _entry(self, key: Any) -> Any:
        entry = super()._entry(key)
        return ABSENT if entry is ABSENT else self._visible(self._code(key), *entry)

    def _present(self) -> Iterable[tuple[bytes, Any]]:
        visible = [(code, self._visible(code, *entry)) for code, entry in super()._present()]
        return [(code, value) for code, value in visible if value is not ABSENT]

    def _visible(self, code: bytes, timestamp: int, value: Any) -> Any:
        """Return what a reader may see of an entry; this counts as an access."""
        if timestamp <= self._expired_until:
            self._put_entry(code, ABSENT)
            return value if self.ttl.shows_expired else ABSENT
        if self.ttl.on_read and timestamp != self._context.now:
            self._put_entry(code, (self._context.now, value))
        return value

    def _put_entry(self, code: bytes, entry: Any) -> None:
        entries = self._entries()
        entries.cache[code] = entry
        entries.written.add(code)

    def _decoded(self, data: bytes) -> Any:
        return TIMESTAMP.unpack_from(data)[0], super()._decoded(data[TIMESTAMP.size :])

    def _written(self, index: int, code: bytes, value: Any) -> bytes:
        return TIMESTAMP.pack(value[0]) + super()._written(index, code, value[1])
