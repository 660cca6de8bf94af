"""Value state."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.datastream.batch_keys import BatchKeys
from penstock.datastream.state import ValueState
from penstock.state.keyed.cells import CellState
from penstock.state.keyed.key_context import UNLOADED


class KeyedValueState(CellState, ValueState[Any]):
    """A value per key."""

    __slots__ = ()

    kind = "value state"

    def value(self) -> Any:  # noqa: D102
        value = self._values[self._context.current]
        return self._load() if value is UNLOADED else value

    def update(self, value: Any) -> None:  # noqa: D102
        if value.__class__ is not self._plain:
            value = self._coerced(value)
        index = self._context.current
        self._values[index] = value
        self._dirty[index] = 1

    def get_many(self, keys: BatchKeys) -> pa.Array:  # noqa: D102
        return self._column().to_arrow(self._many(keys))

    def put_many(self, keys: BatchKeys, values: Any) -> None:  # noqa: D102
        self._put_many(keys, self._from_arrow(keys, values))
