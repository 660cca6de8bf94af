"""What a job tells about its micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MicroBatchReport:
    """One published micro-batch."""

    stage: int
    stage_name: str
    batch: int
    tries: int
    started: float
    """When its first try was submitted, in seconds since the epoch."""
    acknowledged: float
    """When all its tasks had answered."""
    published: float
    records_in: int
    records_out: int
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of the slowest task, by what for."""

    @property
    def seconds(self) -> float:
        """From submission to publication."""
        return self.published - self.started
