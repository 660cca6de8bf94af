"""What has become of a start of a submitted job: from its files and the system's processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.recovery.lease import is_running_here
from penstock.serve.submission.records import StartDir, StartProcess


class ProcessStatus(StrEnum):
    """The status of the process of a start; that of the job is in the job's directory."""

    STARTING = "STARTING"
    """It was requested, and has no process yet."""
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    """The process ended by itself."""
    LOST = "LOST"
    """The process was killed, or the machine was restarted."""


@dataclass(frozen=True, slots=True)
class StartStatus:
    """The status of a start."""

    status: ProcessStatus
    process: StartProcess | None = None
    code: int | None = None
    """The exit code of a process that ended by itself."""
    ended: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing of this start will do anything any more, but for an orphaned driver."""
        return self.status in (ProcessStatus.ENDED, ProcessStatus.LOST)


def status_of(start: StartDir) -> StartStatus:
    """Return the status of a start as it is now."""
    process = start.process
    is_running = process is not None and is_running_here(
        process.host, process.machine, process.pid, process.started
    )
    # Read last: the process writes it, then exits.
    if (end := start.end) is not None:
        return StartStatus(ProcessStatus.ENDED, process, end.code, end.time)
    if process is None:
        return StartStatus(ProcessStatus.STARTING)
    return StartStatus(ProcessStatus.RUNNING if is_running else ProcessStatus.LOST, process)
