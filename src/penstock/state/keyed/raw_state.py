"""Raw state."""

from __future__ import annotations

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import RawState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED, KeyContext
from penstock.state.registry.meta_info import RAW_STATE
from penstock.state.ttl.settings import TtlSettings
from penstock.types.serializers import serializer_for
from penstock.types.traversal import identity


class KeyedRawState(CellState, RawState):
    """Bytes per key, stored unchanged."""

    __slots__ = ()

    kind = RAW_STATE

    def __init__(
        self,
        context: KeyContext,
        name: str,
        type_info: TypeInformation,
        ttl: TtlSettings | None = None,
    ) -> None:
        super().__init__(context, name, serializer_for(type_info), ttl)
        self._read = self._write = identity

    def get(self) -> bytes | None:  # noqa: D102
        value: bytes | None = self._values[self._context.current]
        return self._load() if value is UNLOADED else value

    def set(self, value: bytes) -> None:  # noqa: D102
        value = self._coerced_by(self._coerce, value)
        index = self._context.current
        self._values[index] = value
        self._dirty[index] = 1
