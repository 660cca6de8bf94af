"""The status of a job."""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The status of a job, with Flink's names and PyFlink's numbers."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10
    """Not in PyFlink: the driver has taken the job and is starting it."""

    def is_globally_terminal_state(self) -> bool:
        """Tell whether the job has ended for good and its recovery data may be removed."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Tell whether the job has ended for this process; another may resume it."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()
