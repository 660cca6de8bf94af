"""The result of a finished job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.common.job_id import JobID

__all__ = ["JobExecutionResult"]


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """A finished job: its id, how long it ran, and its accumulators."""

    job_id: JobID
    net_runtime: int
    accumulators: Mapping[str, Any] = field(default_factory=dict)
    micro_batches: tuple[Any, ...] = ()

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return how long the job ran, in milliseconds."""
        return self.net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the value of an accumulator, None if the job had none of that name."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Return the values of all accumulators by name."""
        return dict(self.accumulators)

    def get_micro_batches(self) -> tuple[Any, ...]:
        """Return the newest published micro-batches, a `MicroBatchReport` each."""
        return self.micro_batches

    def is_job_execution_result(self) -> bool:
        """Return true: the job has finished."""
        return True

    def __str__(self) -> str:
        lines = [
            "Program execution finished",
            f"Job with JobID {self.job_id} has finished.",
            f"Job Runtime: {self.net_runtime} ms",
        ]
        if self.accumulators:
            lines.append("Accumulator Results: ")
            lines += [f"- {name}: {value}" for name, value in self.accumulators.items()]
        return "\n".join(lines) + "\n\n"
