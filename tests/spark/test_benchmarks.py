"""The benches of stages and barriers do what they say, at sizes that say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.barriers import backlog, four_stages, latency
from benchmarks.report import markdown_sheet

pytestmark = pytest.mark.spark


def test_every_record_is_seen_later_at_each_hop() -> None:
    found = latency.run(rate=100.0, steps=2, seconds=1.0, warm_up=0.5, parallelism=2)
    assert found["records"] == 100
    assert [len(hop) for hop in found["hops"]] == [100, 100]
    assert min(min(hop) for hop in found["hops"]) > 0
    query = {"micro_batches": [1.0, 2.0], "rows": [40, 40]}
    hops, parts = latency.sheets([({"steps": 2}, found), ({}, query)])
    assert "| micro-batch of a streaming query | 1,000 | 2,000 | - | 2 |" in markdown_sheet(hops)
    assert [row[0] for row in parts.rows][1] == "step 1"


def test_four_stages_run_with_checkpoints_and_without(tmp_path: Path) -> None:
    found = four_stages.run(
        backend="hashmap",
        keys=100,
        rounds=1,
        seconds=1.0,
        warm_up=0.2,
        interval_s=0.3,
        rows_per_batch=1000,
        directory=str(tmp_path / "four-stages"),
    )
    without, with_them = found["runs"]
    assert (without["checkpointed"], without["durations"]) == (False, [])
    assert with_them["checkpointed"]
    assert with_them["rows"] > 0


def test_a_backlog_is_deep_when_checkpoints_are_measured(tmp_path: Path) -> None:
    found = backlog.run(
        steps=2, batch_s=0.1, checkpoints=1, parallelism=2, directory=str(tmp_path / "backlog")
    )
    assert list(found["kinds"]) == list(backlog.KINDS)
    for (one,) in found["kinds"].values():
        assert one["waiting"] >= 2 * backlog.ROWS_PER_BATCH
