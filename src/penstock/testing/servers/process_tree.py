"""Signals a process and its descendants, and kills them when their owner dies.

Run as a program, with a pid and its start time, this file guards one server: it waits for the end
of its standard input, which is closed when the owner is gone for any reason, and then kills the
process tree. It uses only the standard library, so that it starts quickly.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"


def start_time(pid: int) -> int | None:
    """Return when a process was started, in kernel ticks; None if it does not exist.

    Pid and start time together identify a process: pids are reused.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in (b"Z", b"X")


def tree(pid: int) -> list[int]:
    """Return a process and its descendants, as far as their parents are alive."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def is_listening(pid: int, port: int) -> bool:
    """Return whether this process itself listens on a port."""
    # Sockets of a JVM are in the second table, also those bound to IPv4 addresses.
    tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    lines = (line for table in tables if table.exists() for line in table.read_text().splitlines())
    rows = (line.split() for line in lines if "local_address" not in line)
    listening = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }
    return any(target in listening for target in _open_files(pid))


def signal_tree(pid: int, number: signal.Signals) -> list[int]:
    """Send a signal to a process and its descendants, and return their pids."""
    if number in (signal.SIGKILL, signal.SIGSTOP):
        # Stop it first, so that it starts no child between the listing and the signal.
        _send(pid, signal.SIGSTOP)
    members = tree(pid)
    for member in members:
        _send(member, number)
    return members


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stat(pid: int) -> list[bytes] | None:
    # The name, in parentheses, may contain spaces; state, parent and so on follow it.
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
    if start_time(pid) == start:
        signal_tree(pid, signal.SIGKILL)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), int(sys.argv[2]))
