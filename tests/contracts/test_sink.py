"""What every sink guarantees in a job without checkpoints."""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.contracts.sink import SinkSnapshot
from penstock.connectors.discarding_sink import DiscardingSink
from tests.contracts.sink_harness import (
    SHOWING_WHAT_COUNTS,
    SHOWING_WHAT_IS_STAGED,
    TAKING_ANYTHING,
    Attempt,
    Case,
    Shows,
    by_one_function,
    name_of,
    printing,
)


@pytest.fixture(params=[*SHOWING_WHAT_COUNTS, *SHOWING_WHAT_IS_STAGED], ids=name_of)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    with contextlib.closing(request.param(tmp_path, request.getfixturevalue)) as case:
        yield case


counting_only = pytest.mark.parametrize("case", SHOWING_WHAT_COUNTS, ids=name_of, indirect=True)
taking_anything = pytest.mark.parametrize("case", TAKING_ANYTHING, ids=name_of, indirect=True)


class Job(Attempt):
    """A job without checkpoints, and its end."""

    def finish(self) -> None:
        snapshot = self.snapshot(0)
        assert snapshot.state == []
        committer = self.optional_committer()
        if committer is None:
            assert snapshot == SinkSnapshot()
        else:
            commit_all(
                committer, snapshot.committables, retries=0, pause=lambda _: None, step="the sink"
            )
            committer.sweep([])
            committer.close()
        self.publisher.close()


@pytest.fixture
def job(case: Case, tmp_path: Path) -> Job:
    return Job(case, tmp_path, checkpointed=False)


def in_order(case: Case) -> list[str]:
    return case.shown() if case.keeps_order else sorted(case.shown())


@counting_only
def test_nothing_is_visible_before_it_is_published(case: Case, job: Job) -> None:
    job.stage(0, ["x"] * 50_000)
    assert case.shown() == []
    job.finish()
    assert case.shown() == []


def test_everything_published_is_visible_once(case: Case, job: Job) -> None:
    for batch in range(3):
        job.publish([f"{batch}0"], [f"{batch}1"])
    if case.shows is not Shows.AT_THE_END:
        assert in_order(case) == ["00", "01", "10", "11", "20", "21"]
    job.finish()
    assert sorted(case.shown()) == ["00", "01", "10", "11", "20", "21"]


def test_values_of_a_subtask_keep_their_order(case: Case, job: Job) -> None:
    values = [[f"{batch} {number:03}" for number in range(1000)] for batch in range(5)]
    for batch in values:
        job.publish(batch, [])
    job.finish()
    assert in_order(case) == list(itertools.chain(*values))


@counting_only
def test_attempts_that_lost_never_show(case: Case, job: Job) -> None:
    job.stage(0, ["lost"], task_attempt=0)
    aborted = job.writer(0, task_attempt=1)
    aborted.write(case.record("aborted"))
    aborted.abort()
    job.writer(0, task_attempt=2).write(case.record("vanished"))
    job.take([job.stage(0, ["won"], task_attempt=3), job.stage(1, [])])
    job.finish()
    assert case.shown() == ["won"]
    assert case.leftovers() == []


def test_what_travels_with_the_acknowledgement_is_small(case: Case, job: Job) -> None:
    values = [str(number).rjust(100) for number in range(20_000)]
    entry = job.stage(0, values)
    assert len(entry) <= 64 * 1024
    job.take([entry, b""])
    job.finish()
    assert sorted(case.shown()) == sorted(values)


def test_an_empty_micro_batch_makes_nothing_visible(case: Case, job: Job) -> None:
    assert job.stage(0, []) == b""
    job.take([b"", b""])
    job.finish()
    assert case.shown() == []


@taking_anything
def test_a_value_may_change_after_it_was_written(case: Case, job: Job) -> None:
    writer = job.writer(0, type_info=Types.PICKLED_BYTE_ARRAY())
    value = [1]
    writer.write(value)
    value.append(2)
    writer.write(value)
    job.take([writer.stage(), b""])
    job.finish()
    assert list(map(str, case.shown())) == ["[1]", "[1, 2]"]


def discarding(directory: Path, fixture: Any) -> Case:
    return Case(DiscardingSink(), list)


@pytest.mark.parametrize("make", [printing, by_one_function, discarding], ids=name_of)
def test_a_sink_without_a_committer_has_an_empty_snapshot(
    make: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    attempt = Attempt(make(tmp_path, request.getfixturevalue), tmp_path)
    assert attempt.snapshot(flush=False) == SinkSnapshot([], [])
    assert attempt.optional_committer() is None
