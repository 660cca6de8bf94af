"""Where on a host the local stores go."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["choose_local_dir"]

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 2 << 30


def choose_local_dir(
    enough: int = ENOUGH, shared_memory: Path = SHARED_MEMORY, fallback: Path | None = None
) -> Path:
    """Return the fastest directory of this host that has ``enough`` bytes free.

    That is shared memory where there is room (containers often leave 64 MB), else the directory
    for temporary files. What lies there may vanish at any time: it is a cache.
    """
    if os.access(shared_memory, os.W_OK) and shutil.disk_usage(shared_memory).free >= enough:
        return shared_memory
    return Path(tempfile.gettempdir()) if fallback is None else fallback
