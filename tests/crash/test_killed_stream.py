"""A streaming query as a source, whose driver is killed: its state comes back with the job's."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.ids import JobKey
from penstock.testing import read_lines
from tests.crash.driver import Driver
from tests.crash.stream_program import JOB, Variant, expected, write_input

pytestmark = [pytest.mark.crash, pytest.mark.spark]


class StreamDriver(Driver):
    program = "tests.crash.stream_program"


@contextmanager
def started(variant: Variant) -> Iterator[Driver]:
    driver = StreamDriver(variant)
    try:
        yield driver
    finally:
        driver.kill()


def journal_of(variant: Variant) -> JournalState:
    return Journal(JobDir(variant.checkpoints, JobKey(JOB)).storage, JOB).state()


def rows_in_checkpoints(variant: Variant) -> int:
    """How far the newest checkpoint is, by the names of what it keeps of the query."""
    kept = variant.checkpoints.glob("*/connectors/*/*/snapshots/*-*-*")
    return max((int(path.name.split("-")[0]) for path in kept), default=0)


def is_beyond(variant: Variant, rows: int) -> bool:
    return rows_in_checkpoints(variant) > rows


def test_a_stateful_query_is_exactly_once_even_if_its_driver_is_killed(
    tmp_path: Path,
) -> None:
    variant, rng = Variant(str(tmp_path)), random.Random()
    write_input(tmp_path / "in")
    killed_at = 0
    for _ in range(2):
        with started(variant) as driver:
            assert driver.wait_until(partial(is_beyond, variant, killed_at)), driver.words()
            time.sleep(rng.uniform(0.0, 1.0))
            assert driver.kill() == -9, driver.words()
        killed_at = rows_in_checkpoints(variant)
    with started(variant) as last:
        assert last.wait() == 0, last.words()
    lines = [line.split(",") for line in read_lines(variant.output)]
    got = Counter((key, int(start), int(count)) for key, start, count, _ in lines)
    assert got == expected()
    numbers = sorted((key, int(n)) for key, _, _, n in lines)
    assert numbers == [(f"k{k}", n) for k in range(5) for n in range(1, len(lines) // 5 + 1)]
    assert journal_of(variant).attempts_so_far >= 3
