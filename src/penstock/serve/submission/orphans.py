"""Finds what a process of a submitted job has left running after it was killed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from penstock.recovery.lease import machine_id, process_start_time
from penstock.serve.submission.records import StartProcess


def drivers_left_by(process: StartProcess) -> list[int]:
    """Return the leaders of the process groups in the session of a process: its drivers.

    A driver has no lease before its program calls `execute()`. It is in the session that the
    process led, and no other process gets the pid of the process as long as that session exists.
    """
    if process.machine != machine_id() or process.host != socket.gethostname():
        return []
    if process_start_time(process.pid) not in (None, process.started):
        return []  # the pid belongs to another process: the session has ended
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _leads_group_in(pid, process)]


def _leads_group_in(pid: int, process: StartProcess) -> bool:
    try:
        is_leader = os.getsid(pid) == process.pid and os.getpgid(pid) == pid != process.pid
    except ProcessLookupError:
        return False
    started = process_start_time(pid) if is_leader else None
    return started is not None and started >= process.started
