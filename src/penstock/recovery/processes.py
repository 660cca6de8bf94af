"""Whether a process of this machine still lives."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["machine", "start_of"]

_STAT_STATE = 0
_STAT_START = 19
_DEAD = ("Z", "X")


def start_of(pid: int) -> int | None:
    """Return when a process started, in ticks of the system's clock; None if it does not run.

    A process that was killed and not yet collected by its parent does not run. Where the system
    does not tell starts, every process that runs has started at 0.
    """
    if not Path("/proc/self/stat").exists():
        return _start_by_signal(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may hold anything.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STAT_STATE] in _DEAD else int(fields[_STAT_START])


def _start_by_signal(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0


def machine() -> str:
    """Return what pids are to be compared within: this boot and this namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
