"""Output of a sink that a program leaves out: it stays pending until the sink is back."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.checkpoint.storage.journal import Journal
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.datastream import DataStream
from penstock.job.launched_job import LaunchedJob
from penstock.job.restore.retained_snapshots import RetainedSnapshots
from penstock.testing import compare, read_lines
from tests.unit.job.counting import (
    KEYS,
    Count,
    Program,
    bursts,
    counted,
    die,
    idle_after,
    launched,
    wait_for_records,
)

SECOND = "second"
LEAVES_OUT = {"execution__state_recovery__ignore_unclaimed_state": "true"}


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


@dataclass
class TwoSinks(Program):
    """Writes what it counts to a second sink, too, unless that is left out."""

    has_second: bool = True

    def count(self, numbers: DataStream) -> None:
        counts = numbers.key_by(lambda n: n % KEYS).process(Count()).uid(self.uid)
        counts.sink_to(self.sink()).uid("files")
        if self.has_second:
            first, self.output = self.output, SECOND
            counts.sink_to(self.sink()).uid(SECOND)
            self.output = first

    def second_lines(self) -> list[str]:
        return read_lines(self.root / SECOND)


def program_of(root: Path, script: list[object], **settings: str) -> TwoSinks:
    given = {"restart_strategy__type": "none", **settings}
    return TwoSinks(root, script, interval="1 h", settings=given)


def savepoint_with_pending_output(root: Path) -> Path:
    job = program_of(root, idle_after(50)).launch()
    wait_for_records(job, 50)
    path = Path(job.savepoint(str(root / "savepoints")).result(20))
    die(job)
    return path


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def checkpoint_with_pending_output(root: Path, *, stops: bool = False) -> None:
    """A job that dies before it commits the output of its checkpoint or savepoint."""
    job = program_of(root, idle_after(50)).launch()
    wait_for_records(job, 50)
    arm(CrashPoint.SINK_COMMITS_STARTED, action=full_disk)
    if stops:
        job.stop(str(root / "savepoints"), drain=False)
    else:
        job.trigger_checkpoint()
    assert job.wait_for_end(20)
    disarm()


def without_the_second(root: Path, **settings: str) -> LaunchedJob:
    """Start a program without the second sink, which commits the output of the other one."""
    program = program_of(root, idle_after(50), **LEAVES_OUT, **settings)
    program.has_second = False
    job = program.launch()
    assert compare(counted(50), program.lines()).is_exactly_once
    assert program.second_lines() == []
    return job


def consume(root: Path) -> None:
    """Take away what is committed, as a consumer does: it cannot be committed again."""
    shutil.rmtree(root / "out")


def finishes(root: Path, **settings: str) -> None:
    """Run a program with both sinks to the end: what the second had prepared is not lost."""
    program = program_of(root, bursts(100), **settings)
    program.run()
    assert compare(counted(100)[50:], program.lines()).is_exactly_once
    assert compare(counted(100), program.second_lines()).is_exactly_once


def test_output_in_a_savepoint_is_committed_by_a_later_start_with_the_sink(tmp_path: Path) -> None:
    path = savepoint_with_pending_output(tmp_path)
    given = {"execution__state_recovery__path": str(path)}
    die(without_the_second(tmp_path, **given))
    consume(tmp_path)
    finishes(tmp_path, **given)


def test_output_in_a_savepoint_is_committed_when_a_job_that_ended_starts_from_it_again(
    tmp_path: Path,
) -> None:
    path = savepoint_with_pending_output(tmp_path)
    given = {"execution__state_recovery__path": str(path)}
    job = without_the_second(tmp_path, **given)
    job.cancel()
    assert job.wait_for_end(20)
    consume(tmp_path)
    finishes(tmp_path, **given)


@pytest.mark.parametrize("stops", [False, True])
def test_output_in_an_own_snapshot_is_committed_by_the_next_start_with_the_sink(
    tmp_path: Path, stops: bool
) -> None:
    checkpoint_with_pending_output(tmp_path, stops=stops)
    # Twice: the second of them finds only output that it leaves out.
    die(without_the_second(tmp_path))
    die(without_the_second(tmp_path))
    assert not list(tmp_path.glob("savepoints/*/_committed"))
    consume(tmp_path)
    finishes(tmp_path)
    assert len(list(tmp_path.glob("savepoints/*/_committed"))) == stops


def test_output_that_was_left_out_and_then_failed_to_commit_is_not_committed(
    tmp_path: Path,
) -> None:
    checkpoint_with_pending_output(tmp_path)
    die(without_the_second(tmp_path))
    program = program_of(tmp_path, idle_after(50))
    arm(CrashPoint.SINK_COMMITS_STARTED, action=full_disk)
    with pytest.raises(OSError, match="No space"):
        program.launch()
    disarm()
    journal = Journal(program.dir.storage, program.dir.key)
    (restorable,) = journal.state().restorable
    uncommitted = RetainedSnapshots(program.dir, journal).uncommitted()
    assert uncommitted is not None
    assert (uncommitted[0], uncommitted[1] > 0) == (restorable.checkpoint, True)
    consume(tmp_path)
    finishes(tmp_path)


def test_a_job_that_leaves_output_out_can_be_cancelled(tmp_path: Path) -> None:
    checkpoint_with_pending_output(tmp_path)
    die(without_the_second(tmp_path))
    job = without_the_second(tmp_path)
    job.cancel()
    assert job.wait_for_end(20)
    assert TwoSinks(tmp_path).dir.checkpoints_on_disk() == []
