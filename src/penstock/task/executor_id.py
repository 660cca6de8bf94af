"""Finds out which executor of the engine a worker belongs to."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_OPTION = b"--executor-id"
_VARIABLE = "SPARK_EXECUTOR_ID"
_ANCESTORS = 8
_AFTER_STATE = 1


@cache
def executor_id() -> str:
    """Return the id that Spark has given to the executor of this process; empty if it has none.

    Spark does not tell its Python workers. The id is an option of the executor's own command: the
    worker's parent or the parent of that. Where tasks run in the driver there is none.
    """
    pid = os.getpid()
    for _ in range(_ANCESTORS):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        if _OPTION in words[:-1]:
            return words[words.index(_OPTION) + 1].decode("utf-8", "replace")
        # The name, in brackets, may contain anything.
        pid = int(stat.rpartition(")")[2].split()[_AFTER_STATE])
    return os.environ.get(_VARIABLE, "")
