"""Workers killed with -9 at every point of a task: a micro-batch is one execution or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import MicroBatchFailedError
from tests.crash.ledger import KEYS, Fuse, assert_one_execution, delayed_kill, run_ledger

pytestmark = [pytest.mark.crash, pytest.mark.spark]

RECORDS = 2_000


@pytest.mark.parametrize("backend", ["hashmap", "memory"])
def test_a_worker_killed_before_staging_keeps_the_output_exact(
    tmp_path: Path, backend: str
) -> None:
    fuse = Fuse(tmp_path, times=2)

    def on_record(n: int) -> None:
        if n in (700, 1500):
            fuse.blow()

    lines, counters, _ = run_ledger(
        RECORDS, on_record=on_record, settings={"state.backend.type": backend}
    )
    assert fuse.blown() == 2
    assert_one_execution(lines, counters, RECORDS)


def test_a_worker_killed_after_staging_keeps_the_output_exact(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path, times=2)
    lines, counters, _ = run_ledger(RECORDS, sink_fuse=fuse)
    assert fuse.blown() == 2
    assert_one_execution(lines, counters, RECORDS)


def test_a_worker_killed_while_writing_segments_keeps_the_output_exact(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path, times=2)

    def key(n: int) -> int:
        # Key selectors run while a chunk is being split and written.
        if n in (450, 1250):
            fuse.blow()
        return n % KEYS

    lines, counters, _ = run_ledger(RECORDS, key=key)
    assert fuse.blown() == 2
    assert_one_execution(lines, counters, RECORDS)


@pytest.mark.parametrize("milliseconds", [1, 3, 5, 8, 13, 21])
def test_a_worker_killed_at_any_time_keeps_the_output_exact(
    tmp_path: Path, milliseconds: int
) -> None:
    fuse = Fuse(tmp_path, times=2)
    hook = delayed_kill(fuse, milliseconds / 1000)
    lines, counters, _ = run_ledger(RECORDS, on_record=hook)
    assert_one_execution(lines, counters, RECORDS)


def test_a_micro_batch_whose_task_fails_too_often_runs_again_as_a_whole(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path, times=4)  # as often as Spark tries a task

    def on_record(n: int) -> None:
        if n == 900:
            fuse.blow()

    lines, counters, batches = run_ledger(RECORDS, on_record=on_record)
    assert fuse.blown() == 4
    assert max(b.tries for b in batches) == 2
    assert_one_execution(lines, counters, RECORDS)


def test_a_micro_batch_that_always_fails_fails_the_job_with_its_cause(tmp_path: Path) -> None:
    fuse = Fuse(tmp_path, times=1_000)

    def on_record(n: int) -> None:
        if n == 300:
            fuse.blow()

    with pytest.raises(MicroBatchFailedError, match=r"micro-batch \d+ failed in all 2 tries"):
        run_ledger(1_000, on_record=on_record, settings={"penstock.micro-batch.max-tries": "2"})
