"""One version of a subtask's state, open for reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from penstock.state.backends.refs import LocalSnapshot, StagedName
from penstock.state.key_groups import KeyGroupRange


class StateStore(ABC):
    """One version of a subtask's state, open for reading by one task.

    It reads exactly ``version`` until it is closed, whatever other processes do meanwhile. Keys are
    never empty; a value may be.
    """

    version: int
    was_rebuilt: bool = False
    """Whether it was rebuilt from all files of the version, as no local store could catch up."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return a value, or None, for each key; fastest if the keys are sorted."""
        return list(map(self.get, keys))

    @abstractmethod
    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Iterate, ordered by key, from ``start`` up to, not including, ``stop``."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries whose keys begin with ``prefix``, ordered by key."""
        return self.scan_between(prefix, end_of_prefix(prefix))

    def scan_key_groups(
        self, table: int, key_groups: KeyGroupRange
    ) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over a table's entries in a range of key groups, ordered by key."""
        prefix = table.to_bytes(2, "big")
        start = prefix + key_groups.start.to_bytes(2, "big")
        stop = prefix + key_groups.stop.to_bytes(2, "big")
        return self.scan_between(start, stop)

    def snapshot(self, name: StagedName) -> LocalSnapshot | None:
        """Take a local snapshot for a compaction; the synchronous phase of a checkpoint.

        Called at most once by the task that has the store open, before it processes. None where a
        compaction needs only the files of the ref.
        """
        return None

    def properties(self, names: Sequence[str]) -> dict[bytes, dict[str, int]]:
        """Return some of RocksDB's properties, by the prefix of a table's keys; for metrics.

        They are those of the store, without the changes of the running micro-batch. Empty if the
        store is not a RocksDB.
        """
        return {}

    def prepare(self) -> None:
        """Do ahead, in small steps, what look-ups would do; other threads get time in between."""
        return

    @abstractmethod
    def close(self) -> None:
        """Release all files and locks; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the least key above all keys with this prefix, None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
