"""Local stores that one process at a time may have open: one slot each, behind a lock."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.state.backends.local_stores import boot_id

__all__ = ["LocalSlot", "take_slot"]

_SLOTS = 3


class LocalSlot:
    """The right to do anything with the store at ``path``, until it is released or we die."""

    __slots__ = ("_lock", "path")

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def release(self) -> None:
        """Let others have the slot; called once."""
        os.close(self._lock)


def take_slot(local_dir: Path, kind: str) -> LocalSlot | None:
    """Take the first free slot, None if there is none.

    A zombie that does not let go of the first costs the others a second copy, not their time.
    """
    local_dir.mkdir(parents=True, exist_ok=True)
    for number in range(_SLOTS):
        path = local_dir / f"{kind}-{boot_id()}-{number}"
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return LocalSlot(path, lock)
    return None
