"""Where the time of a micro-batch is spent: `python -m benchmarks.micro_batch`.

Runs the keyed bench's job and takes apart its micro-batches, the first five of each stage left
out: what the slowest task did, what Spark took around it, and what the driver took to publish.
Once with full micro-batches, once with nearly empty ones, which shows the fixed costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.penstock_keyed import environment, updates
from benchmarks.plan import FEW_KEYS
from benchmarks.report import Sheet, markdown_sheet
from benchmarks.workload import Workload, default_cache
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.job.reports import MicroBatchReport

WARM_UP = 5
FULL = Workload(FEW_KEYS, 500_000, 17, 2, str(default_cache()))
SMALL = Workload(FEW_KEYS, 100, 60, 2, str(default_cache()))


@dataclass(frozen=True)
class Part:
    """A share of a micro-batch's time, in milliseconds."""

    name: str
    milliseconds: float


def reports_of(workload: Workload) -> list[MicroBatchReport]:
    workload.generate()
    env = environment(workload)
    updates(env, str(workload.directory)).sink_to(DiscardingSink())
    return list(env.execute("profile").get_micro_batches())


def parts_of(reports: Sequence[MicroBatchReport]) -> list[Part]:
    """The median of each share over the micro-batches of one stage."""
    phases = list(dict.fromkeys(phase for one in reports for phase in one.phases))
    shares = [
        ("Spark around the tasks", [_around(one) for one in reports]),
        *((f"task: {phase}", [one.phases.get(phase, 0.0) for one in reports]) for phase in phases),
        ("publish", [one.published - one.acknowledged for one in reports]),
        ("all", [one.seconds for one in reports]),
    ]
    return [Part(name, median(seconds) * 1000) for name, seconds in shares]


def _around(report: MicroBatchReport) -> float:
    return report.acknowledged - report.started - sum(report.phases.values())


def sheet(title: str, workload: Workload) -> Sheet:
    reports = reports_of(workload)
    rows = []
    for stage in sorted({one.stage for one in reports}):
        mine = [one for one in reports if one.stage == stage][WARM_UP:]
        for part in parts_of(mine):
            rows.append([mine[0].stage_name, part.name, f"{part.milliseconds:.1f}"])
    return Sheet(title, ("stage", "part", "ms, median"), rows)


if __name__ == "__main__":
    print(markdown_sheet(sheet("One micro-batch of 500,000 records, 10,000 keys", FULL)))
    print()
    print(markdown_sheet(sheet("One micro-batch of 100 records", SMALL)))
