"""The keys of a record batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["BatchKeys"]


class BatchKeys(ABC):
    """The distinct keys of a record batch, and which row has which.

    The argument of `get_many` and `put_many` of states, with one index for each distinct key.
    """

    index: pa.Int32Array
    """For each row the index of its key, from 0 to ``len(keys) - 1``."""
    numbers: Sequence[int]
    """For each index the number of its key in the micro-batch; for the states' internal use."""

    def __len__(self) -> int:
        return len(self.numbers)

    def groups(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Return the row numbers grouped by key, each group in the order of its rows.

        The second array has the start of each group, for numpy's ``reduceat`` and the like.
        """
        index = self.index.to_numpy()
        # numpy sorts small integers by radix sort, ten times as fast.
        small = index.astype(np.uint16) if len(self) <= 1 << 16 else index
        counts = np.bincount(index, minlength=len(self))
        return np.argsort(small, kind="stable"), np.cumsum(counts) - counts

    @abstractmethod
    def values(self) -> list[Any]:
        """Return the distinct keys, by index."""
