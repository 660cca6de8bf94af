"""Raw state."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import RawState
from penstock.errors import TypeMismatchError
from penstock.state.cells import CellState
from penstock.state.scope import UNLOADED, KeyScope
from penstock.state.serializers import serializer_for
from penstock.state.table import RAW_STATE

__all__ = ["KeyedRawState"]


class KeyedRawState(CellState, RawState):
    """Bytes per key, stored as they are."""

    __slots__ = ()

    kind = RAW_STATE

    def __init__(self, scope: KeyScope, name: str, type_info: TypeInformation) -> None:
        super().__init__(scope, name, serializer_for(type_info))
        self._read = self._write = _untouched

    def get(self) -> bytes | None:  # noqa: D102
        value: bytes | None = self._values[self._scope.current]
        return self._load() if value is UNLOADED else value

    def set(self, value: bytes) -> None:  # noqa: D102
        index = self._scope.current
        try:
            self._values[index] = self._fit(value)
        except TypeMismatchError as error:
            raise self._named(error, index) from None
        self._dirty[index] = 1


def _untouched(value: Any) -> Any:
    return value
