"""Peak memory of the Python workers and the JVM under this process, from /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

WORKER_MODULES = ("pyspark.daemon", "pyspark.worker")


class MemorySampler:
    """Look at this process's descendants every so often and keep the highest marks.

    VmHWM is the kernel's own high-water mark of a process, so a peak between two looks is seen too.
    It counts memory that a worker shares with others, like a mapped file, in each of them.
    """

    def __init__(self, interval: float = 0.2) -> None:
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)
        self.peak_worker_mb: float | None = None
        self.peak_jvm_mb: float | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._look()

    def _look(self) -> None:
        for pid, parent in descendants(os.getpid()):
            command = _command(pid)
            if not command:
                continue
            if Path(command[0]).name == "java":
                self.peak_jvm_mb = _higher(self.peak_jvm_mb, _high_water_mb(pid))
            elif _is_worker(command) and not _starts_workers(pid, parent):
                self.peak_worker_mb = _higher(self.peak_worker_mb, _high_water_mb(pid))


def descendants(root: int) -> list[tuple[int, int]]:
    """All (process, parent) below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: list[tuple[int, int]] = []
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        for child in children.get(parent, []):
            found.append((child, parent))
            waiting.append(child)
    return found


def _is_worker(command: list[str]) -> bool:
    return any(module in command for module in WORKER_MODULES)


def _starts_workers(pid: int, parent: int) -> bool:
    """Whether this is the daemon: it is a child of the JVM, its workers are children of it."""
    command = _command(parent)
    return bool(command) and Path(command[0]).name == "java" and "pyspark.daemon" in _command(pid)


def _higher(one: float | None, other: float | None) -> float | None:
    known = [mark for mark in (one, other) if mark is not None]
    return max(known, default=None)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _high_water_mb(pid: int) -> float | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None
