"""How long micro-batches take, by the rate of records: a fixed cost, and a cost per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.history import LoadStats
from penstock.models import defaults
from penstock.models.fitting.robust_fit import fit_line


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

    Large and small micro-batches show both. If all had the same size, the slowest tasks are taken
    to be what depends on the records.
    """
    spans = [s for s in spans if s.batches > 0 and s.region_records > 0]
    read, processed = sum(s.records for s in spans), sum(s.region_records for s in spans)
    if read == 0:
        return None
    # The region that works most may see more or fewer records than the sources read.
    line = fit_line(
        [s.region_records * read / processed / s.batches for s in spans],
        [s.busy_s / s.batches for s in spans],
        default_slope=sum(s.working_s for s in spans) / read,
    )
    return MicroBatches(line.intercept, line.slope, target_s)
