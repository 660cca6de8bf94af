"""Windows as columns that people and query engines can read.

These columns are for looking at: what a restore goes by are the windows' own bytes beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.window_bytes import COUNT, TIME

__all__ = ["WindowColumns", "window_columns"]

_COLUMNS = {TIME: ("window_start", "window_end"), COUNT: ("window",)}
_MIDDLE = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """How windows of one encoding are shown in Arrow: as the numbers they are made of."""

    names: tuple[str, ...]

    @property
    def fields(self) -> list[pa.Field]:
        """The columns in their order."""
        return [pa.field(name, pa.int64()) for name in self.names]

    def fill(self, windows: Sequence[bytes]) -> dict[str, pa.Array]:
        """Return the columns, by name."""
        numbers = np.frombuffer(b"".join(windows) if self.names else b"", ">u8")
        shown = (numbers.astype(np.uint64) ^ _MIDDLE).view(np.int64)
        count = len(self.names)
        return {name: pa.array(shown[i::count]) for i, name in enumerate(self.names)}


def window_columns(encoding: str) -> WindowColumns:
    """Return the columns for windows of an encoding; some have nothing to show."""
    return WindowColumns(_COLUMNS.get(encoding, ()))
