"""A process and its children: signalled together, and killed when their owner dies.

Run as a program, with a pid and when it was born, this file is the guard of one server: it waits
for the end of its standard input, which comes when its owner is gone however it went, and kills
the family then. It needs nothing but the standard library, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["alive", "born", "family", "listens", "signal_family"]

_LISTENING = "0A"


def born(pid: int) -> int | None:
    """Return when a process was started, in the kernel's ticks; None if there is none.

    Together with the pid this names a process for good: pids come back.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def alive(pid: int) -> bool:
    """Tell whether a process still runs; a dead one that nobody reaped does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it and still have a living line to it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def listens(pid: int, port: int) -> bool:
    """Tell whether it is this very process that listens on a port."""
    # A JVM's sockets are in the second table, whatever address they are bound to.
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    lines = (line for table in tables if table.exists() for line in table.read_text().splitlines())
    rows = (line.split() for line in lines if "local_address" not in line)
    listening = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }
    return any(target in listening for target in _open_files(pid))


def signal_family(pid: int, number: signal.Signals) -> list[int]:
    """Send a signal to a process and its descendants, and return whom it was sent to."""
    if number in (signal.SIGKILL, signal.SIGSTOP):
        # First, so that it starts no child that nobody has seen.
        _send(pid, signal.SIGSTOP)
    members = family(pid)
    for member in members:
        _send(member, number)
    return members


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stat(pid: int) -> list[bytes] | None:
    # The name, in parentheses, may hold spaces: what follows it is state, parent and so on.
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return text[text.rindex(b")") + 2 :].split()


def _open_files(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield str(file.readlink())


def _guard(pid: int, start: int) -> None:
    sys.stdin.buffer.read()
    if born(pid) == start:
        signal_family(pid, signal.SIGKILL)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), int(sys.argv[2]))
