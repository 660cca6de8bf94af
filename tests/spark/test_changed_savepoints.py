"""Changed copies of snapshots: jobs that start from them lose nothing and repeat nothing.

The snapshots are the golden ones, with every kind of state, windows, timers, operator state and
output that is not committed; all output is compared with what the input says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InFlightDataError
from penstock.savepoint.directory import read_savepoint_metadata
from penstock.snapshots.reading import reading
from penstock.spark.session import open_session
from penstock.spark.state import SavepointWriter
from tests.compatibility.conftest import GOLDEN, Unpack, no_waiting_for_the_disk, unpack
from tests.golden.programs import states
from tests.golden.programs.running import Run

pytestmark = pytest.mark.spark

__all__ = ["no_waiting_for_the_disk", "unpack"]

RESTORE = "execution.state-recovery.path"
BACKEND = "state.backend.type"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session({"spark.master": "local[2]"})
    yield session
    session.stop()


def same(frame: DataFrame) -> DataFrame:
    """Return the rows of a state as they are, through Spark."""
    return frame.select(*frame.columns)


def snapshot_in(directory: Path, name: str) -> Path:
    if name == "savepoint":
        (saved,) = (directory / "savepoints").iterdir()
        return saved
    return directory / "checkpoints" / states.JOB


def keyed_states(path: Path) -> list[tuple[str, str]]:
    """Return uid and name of all keyed states."""
    with reading(path) as found:
        stored = found.snapshot
        return [
            (operator.uid, state.name)
            for operator in stored.keyed_operators
            for state in stored.keyed_states(operator)
        ]


def faults_after(directory: Path, savepoint: str, backend: str, parallelism: int) -> list[str]:
    """Return what is wrong with the output of a job that starts from a savepoint."""
    settings = {RESTORE: savepoint, BACKEND: backend, "penstock.restore.allow-pickle": "true"}
    run = Run(directory, more=True, parallelism=parallelism, settings=settings)
    states.build(run).execute("states")
    return states.faults(run, rescaled=True)


@pytest.mark.parametrize(
    ("name", "backend", "parallelism"),
    [("hashmap", "rocksdb", 1), ("rocksdb", "memory", 3), ("memory", "hashmap", 2)],
)
def test_a_checkpoint_that_is_written_as_a_savepoint_is_restored_exactly(
    spark: SparkSession, unpack: Unpack, tmp_path: Path, name: str, backend: str, parallelism: int
) -> None:
    directory = unpack(GOLDEN / "v1" / name)
    with SavepointWriter.from_existing_savepoint(spark, snapshot_in(directory, name)) as writer:
        path = writer.write(tmp_path / "saved")
    assert faults_after(directory, path, backend, parallelism) == []


@pytest.mark.parametrize(
    ("name", "backend", "parallelism"), [("savepoint", "rocksdb", 3), ("hashmap", "memory", 1)]
)
def test_states_that_were_rows_meanwhile_are_restored_exactly(
    spark: SparkSession, unpack: Unpack, tmp_path: Path, name: str, backend: str, parallelism: int
) -> None:
    directory = unpack(GOLDEN / "v1" / name)
    place = snapshot_in(directory, name)
    with SavepointWriter.from_existing_savepoint(spark, place) as writer:
        for uid, state in keyed_states(place):
            writer.transform_state(uid, state, same)
        path = writer.write(tmp_path / "saved")
    assert faults_after(directory, path, backend, parallelism) == []


@pytest.mark.parametrize("name", ["savepoint", "rocksdb"])
def test_state_with_another_max_parallelism_is_restored_exactly(
    spark: SparkSession, unpack: Unpack, tmp_path: Path, name: str
) -> None:
    directory = unpack(GOLDEN / "v1" / name)
    place = snapshot_in(directory, name)
    with SavepointWriter.from_existing_savepoint(spark, place) as writer:
        for uid in dict.fromkeys(uid for uid, _ in keyed_states(place)):
            writer.change_max_parallelism(uid, 1000)
        path = writer.write(tmp_path / "saved")
    metadata = read_savepoint_metadata(Path(path))
    assert {o.max_parallelism for o in metadata.operators if o.savepoint} == {1000}
    assert faults_after(directory, path, "hashmap", 3) == []


def test_a_checkpoint_with_in_flight_data_is_refused(spark: SparkSession, unpack: Unpack) -> None:
    directory = unpack(GOLDEN / "v1" / "in-flight")
    (job,) = (directory / "checkpoints").iterdir()
    with pytest.raises(InFlightDataError, match="unaligned checkpoint with in-flight data"):
        SavepointWriter.from_existing_savepoint(spark, job)
