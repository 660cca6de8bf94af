"""Output that was not committed when a snapshot was taken: its changed copy commits it once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.savepoint.directory import read_savepoint_metadata
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter
from penstock.testing import compare
from tests.spark.test_changed_savepoints import keyed_states
from tests.unit.job.counting import (
    Program,
    checkpoint,
    counted,
    die,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.job.test_retention import (
    RETAIN,
    canceled,
    consume,
    resumes_after_fifty,
    started_from,
    stopped,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]"})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


def same(frame: DataFrame) -> DataFrame:
    return frame.select("*")


def changed(spark: SparkSession, path: Path, root: Path, name: str = "changed") -> Path:
    """Write a copy of a snapshot with all of its keyed state written again."""
    with SavepointWriter.from_existing_savepoint(spark, path) as writer:
        for uid, state in keyed_states(path):
            writer.transform_state(uid, state, same)
        return Path(writer.write(root / name))


def saved(root: Path) -> tuple[Program, Path]:
    """Return a job that runs after a savepoint with output that is not committed."""
    program = Program(root, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    return program, Path(job.savepoint(str(root / "savepoints")).result(20))


def starts_from(root: Path, path: Path, directory: str = "checkpoints") -> None:
    """Start a job from a snapshot: it commits what that holds, and is canceled."""
    given = {"execution__state_recovery__path": str(path)}
    program = Program(root, idle_after(50), interval="1 h", directory=directory, settings=given)
    job = program.launch()
    wait_for_lines(program, 50)
    job.cancel()
    assert job.wait_for_end(20)


def pending(path: Path) -> int:
    operators = read_savepoint_metadata(path).operators
    return sum(len(o.sink.committables) for o in operators if o.sink is not None)


def test_output_of_a_stop_is_not_committed_again(spark: SparkSession, tmp_path: Path) -> None:
    program, path = stopped(tmp_path)
    assert pending(path) > 0
    consume(program)
    copy = changed(spark, path, tmp_path)
    assert pending(copy) == 0
    resumes_after_fifty(tmp_path, copy)


def test_output_that_nobody_has_committed_is_committed(spark: SparkSession, tmp_path: Path) -> None:
    program, path = saved(tmp_path)
    die(launched[-1])
    assert program.lines() == []
    copy = changed(spark, path, tmp_path)
    assert pending(copy) > 0
    resumes_after_fifty(tmp_path, copy)
    assert program.verdict(50).is_exactly_once


def test_output_that_the_job_of_the_original_commits_later_is_not_committed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    program, path = saved(tmp_path)
    copy = changed(spark, path, tmp_path)
    assert pending(copy) > 0
    checkpoint(launched[-1])
    wait_for_lines(program, 50)
    die(launched[-1])
    consume(program)
    resumes_after_fifty(tmp_path, copy)


@pytest.mark.parametrize("copied", ["before", "after"])
def test_output_that_a_start_from_the_original_has_committed_is_not_committed_again(
    spark: SparkSession, tmp_path: Path, copied: str
) -> None:
    program, path = saved(tmp_path)
    die(launched[-1])
    copy = changed(spark, path, tmp_path) if copied == "before" else None
    starts_from(tmp_path, path)
    consume(program)
    if copy is None:
        copy = changed(spark, path, tmp_path)
        assert pending(copy) == 0
    resumes_after_fifty(tmp_path, copy)


def test_output_that_another_job_has_committed_is_not_committed_again_by_that_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    program, path = saved(tmp_path)
    die(launched[-1])
    starts_from(tmp_path, path, "others")
    consume(program)
    other = started_from(tmp_path, changed(spark, path, tmp_path))
    other.directory = "others"
    other.run()
    assert compare(counted(100)[50:], other.lines()).is_exactly_once


@pytest.mark.parametrize("copied", ["before", "after"])
def test_output_that_a_start_from_a_copy_has_committed_is_not_committed_by_a_copy_of_the_copy(
    spark: SparkSession, tmp_path: Path, copied: str
) -> None:
    program, path = saved(tmp_path)
    die(launched[-1])
    first = changed(spark, path, tmp_path, "first")
    second = changed(spark, first, tmp_path, "second") if copied == "before" else None
    starts_from(tmp_path, first)
    consume(program)
    resumes_after_fifty(tmp_path, second or changed(spark, first, tmp_path, "second"))


def test_output_of_a_retained_checkpoint_is_not_committed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    program, path = canceled(tmp_path, **RETAIN)
    consume(program)
    resumes_after_fifty(tmp_path, changed(spark, path, tmp_path))


def test_a_sink_with_output_to_commit_can_be_neither_removed_nor_renamed(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, path = saved(tmp_path)
    die(launched[-1])
    operators = read_savepoint_metadata(path).operators
    (sink,) = [o.uid for o in operators if o.sink is not None and o.sink.committables]
    writer = SavepointWriter.from_existing_savepoint(spark, path)
    writer.remove_operator(sink).change_operator_identifier(sink, "another")
    first, second = writer.dry_run().problems
    assert "it has output that is not committed, which would be lost" in first
    assert "which only a sink with the same uid can commit" in second
    writer = SavepointWriter.from_existing_savepoint(spark, path)
    assert writer.remove_operator(sink, discard_output=True).dry_run().ok
