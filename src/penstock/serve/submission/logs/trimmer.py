"""Keeps the log of a running job from growing: frees its beginning on disk.

Drivers, the JVM and its workers write into one file that none of them can reopen. Therefore it is
neither renamed nor copied: its beginning becomes a hole, which takes no space. No line is lost
between two files, and an offset into the log stays valid.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BLOCK = 4096
_STAT_BLOCK = 512
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_EVERY_S = 2.0


@contextmanager
def trimming(log: Path, max_bytes: int, every_s: float = _EVERY_S) -> Iterator[None]:
    """Trim a log regularly during this context, and at its end."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(every_s):
            trim(log, max_bytes)

    thread = threading.Thread(target=work, name="log-trimmer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        trim(log, max_bytes)


def trim(log: Path, max_bytes: int) -> None:
    """Free the beginning of a log that takes more than this on disk, but for half of it."""
    with suppress(OSError):
        facts = log.stat()
        if facts.st_blocks * _STAT_BLOCK <= max_bytes:
            return
        end = (facts.st_size - max_bytes // 2) // _BLOCK * _BLOCK
        if end > 0 and not _punch(log, end):
            # A file system without holes: what is appended next is at the beginning.
            os.truncate(log, 0)


def _punch(log: Path, length: int) -> bool:
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if fallocate is None:
        return False
    descriptor = os.open(log, os.O_WRONLY)
    try:
        fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return int(fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, length)) == 0
    finally:
        os.close(descriptor)
