"""Map state whose entries expire one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.state.lifetime import Lifetime
from penstock.state.map_state import ABSENT, KeyedMapState
from penstock.state.scope import KeyScope
from penstock.state.stamps import STAMP

__all__ = ["ExpiringMapState"]


class ExpiringMapState(KeyedMapState):
    """A map per key, each entry of it for a time; what is cached are values with their stamps."""

    __slots__ = ("_dead", "lifetime")

    lifetime: Lifetime

    def __init__(
        self,
        scope: KeyScope,
        name: str,
        type_info: TypeInformation,
        key_type_info: TypeInformation,
        value_type_info: TypeInformation,
        lifetime: Lifetime,
    ) -> None:
        self.lifetime = lifetime
        super().__init__(scope, name, type_info, key_type_info, value_type_info)

    def put(self, key: Any, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain and value is not None:
            value = self._fitted(key, value)
        self._keep(self._code(key), (self._scope.now, value))

    def is_empty(self) -> bool:  # noqa: D102
        if self.lifetime.shows_expired:
            return super().is_empty()
        # To look whether something is there is not to read it.
        return all(stamp <= self._dead for _, (stamp, _) in super()._present())

    def _touched(self) -> int:
        return len(self._maps)

    def _reset(self, count: int) -> None:
        super()._reset(count)
        # What is stamped no later than this has expired.
        self._dead = self._scope.now - self.lifetime.millis

    def _entry(self, key: Any) -> Any:
        stamped = super()._entry(key)
        return ABSENT if stamped is ABSENT else self._shown(self._code(key), *stamped)

    def _present(self) -> Iterable[tuple[bytes, Any]]:
        shown = [(code, self._shown(code, *stamped)) for code, stamped in super()._present()]
        return [(code, value) for code, value in shown if value is not ABSENT]

    def _shown(self, code: bytes, stamp: int, value: Any) -> Any:
        """Return what a reader may see of an entry, and treat it as read."""
        if stamp <= self._dead:
            self._keep(code, ABSENT)
            return value if self.lifetime.shows_expired else ABSENT
        if self.lifetime.on_read and stamp != self._scope.now:
            self._keep(code, (self._scope.now, value))
        return value

    def _keep(self, code: bytes, stamped: Any) -> None:
        entries = self._entries()
        entries.cache[code] = stamped
        entries.written.add(code)

    def _decoded(self, data: bytes) -> Any:
        return STAMP.unpack_from(data)[0], super()._decoded(data[STAMP.size :])

    def _written(self, index: int, code: bytes, value: Any) -> bytes:
        return STAMP.pack(value[0]) + super()._written(index, code, value[1])
