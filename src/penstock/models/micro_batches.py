"""How long micro-batches take, by the rate of records: a fixed cost, and a cost per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.history import LoadStats
from penstock.models import defaults


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The micro-batches of the region that is busiest."""

    fixed_s: float
    """Per micro-batch."""
    per_record_s: float
    """Per record that the sources read."""
    target_s: float = defaults.TARGET_DURATION_S

    @property
    def longest_s(self) -> float:
        """The duration at which `MicroBatchSizer` limits them.

        Where the fixed cost is near the target, the work is not made smaller than the fixed cost.
        """
        return max(self.target_s, 2 * self.fixed_s)

    @property
    def highest_rate(self) -> float | None:
        """Records per second of micro-batches of the longest duration, None if unknown."""
        if self.per_record_s <= 0:
            return None
        return (self.longest_s - self.fixed_s) / self.per_record_s / self.longest_s

    def duration(self, rate: float) -> float:
        """Return how long a micro-batch takes that holds what arrived during the one before."""
        idle = 1 - self.per_record_s * rate
        return min(self.fixed_s / idle, self.longest_s) if idle > 0 else self.longest_s


def fit_micro_batches(
    spans: Sequence[LoadStats], target_s: float = defaults.TARGET_DURATION_S
) -> MicroBatches | None:
    """Fit the costs to the load of a job, None if nothing was recorded.

    The slowest tasks show what depends on the records; the rest of a micro-batch does not.
    """
    batches = sum(s.batches for s in spans)
    read = sum(s.records for s in spans)
    busy, working = sum(s.busy_s for s in spans), sum(s.working_s for s in spans)
    if batches == 0 or read == 0:
        return None
    return MicroBatches(max(0.0, busy - working) / batches, working / read, target_s)
