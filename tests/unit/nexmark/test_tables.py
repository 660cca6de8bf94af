from __future__ import annotations

from benchmarks.nexmark import plan
from benchmarks.nexmark.contract import Timed
from benchmarks.nexmark.tables import sheet
from benchmarks.report import markdown_sheet


def run(query: str, engine: str, round_: int, rate: int) -> plan.Run:
    timed = Timed(events=2 * rate, all_events=3 * rate, seconds=2.0, worker_mb=None, jvm_mb=None)
    return plan.Run(query, engine, round_, timed)


def test_engines_take_turns_within_a_round_and_all_read_the_same_events() -> None:
    options = plan.Options(["q5", "q7"], ["pyflink", "spark"], 2, 1000, 200, 10_000, 2, "cache")
    requests = list(plan.requests(options))
    order = [(one.round, one.query, one.engine.name) for one in requests]
    assert order == [
        (number, query, engine)
        for number in (1, 2)
        for query in ("q5", "q7")
        for engine in ("pyflink", "spark")
    ]
    assert len({str(one.job.given["events"]) for one in requests}) == 1
    assert options.workload.files == 10


def test_the_table_has_medians_ratios_and_gaps_for_missing_runs() -> None:
    runs = [
        run("q5", "penstock-hashmap", 1, 900),
        run("q5", "penstock-hashmap", 2, 1100),
        run("q5", "pyflink", 1, 90),
        run("q5", "pyflink", 2, 110),
        run("q5", "spark", 1, 4000),
    ]
    table = markdown_sheet(sheet(runs))
    assert "| q5 | 1,000 | - | 100 | 4,000 | 10.00 | - | 0.25 | - |" in table
