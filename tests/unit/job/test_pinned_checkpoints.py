"""A checkpoint that is being read stays complete, whatever its job does meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.checkpoint.storage.pins import pinned
from penstock.job.launched_job import LaunchedJob
from penstock.snapshots.look_up import OpenOperator
from penstock.snapshots.reading import completed_checkpoints
from penstock.snapshots.stored_snapshot import (
    StoredSnapshot,
    open_snapshot,
    opened_part,
    state_named,
)
from tests.unit.job.counting import (
    KEYS,
    Program,
    checkpoint,
    die,
    idle_after,
    launched,
    wait_for_lines,
)
from tests.unit.snapshots.json_rows import json_rows, page_of
from tests.unit.support import eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def newest(program: Program) -> StoredSnapshot:
    return open_snapshot(program.dir.from_journal_path(completed_checkpoints(program.dir)[0].path))


def counts(snapshot: StoredSnapshot) -> dict[int, int]:
    operator = snapshot.operator("count")
    found: dict[int, int] = {}
    for part in snapshot.parts(operator):
        with opened_part(part) as one:
            state = state_named(snapshot.keyed_states(operator), operator, "count")
            page = page_of(OpenOperator([one], [part.key_groups]), state, 100)
            found |= {row["key"]: row["value"] for row in json_rows(page.rows)}
    return found


def started(program: Program, records: int) -> LaunchedJob:
    job = program.launch()
    wait_for_lines(program, records)
    return job


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_pinned_checkpoint_is_read_while_newer_ones_subsume_it(
    tmp_path: Path, backend: str
) -> None:
    settings = {"state__backend__type": backend}
    program = Program(tmp_path, idle_after(30), interval="1 h", settings=settings)
    job = program.launch()
    eventually(lambda: sum(r.records_in for r in job.micro_batches() if r.stage == 1) >= 30)
    first = checkpoint(job)
    with pinned(program.dir, first):
        snapshot = newest(program)
        assert snapshot.metadata.checkpoint == first
        for _ in range(4):
            checkpoint(job)
        die(job)
        again = started(Program(tmp_path, idle_after(60), interval="20 ms", settings=settings), 60)
        assert counts(snapshot) == dict.fromkeys(range(KEYS), 30 // KEYS)
        assert counts(newest(program))[0] > 30 // KEYS
    checkpoint(again)
    checkpoint(again)
    assert first not in program.dir.checkpoints_on_disk()
