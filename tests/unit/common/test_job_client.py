from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common import Configuration, JobClient, JobStatus, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.errors import CheckpointFailedError, InvalidJobError
from penstock.savepoint.directory import read_savepoint_metadata
from penstock.testing.inline import run_inline


def slowly(number: int) -> int:
    time.sleep(0.001)
    return number


@pytest.fixture
def client(tmp_path: Path) -> Iterator[JobClient]:
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "penstock.micro-batch.max-records": "50",
    }
    env = run_inline(
        StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    )
    numbers = NumberSequenceSource(1, 10_000_000)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(slowly, Types.LONG()).sink_to(DiscardingSink())
    client = env.set_parallelism(1).execute_async("numbers")
    yield client
    client.cancel()
    client.get_job_execution_result().exception()


def test_a_savepoint_is_written_while_the_job_continues(client: JobClient, tmp_path: Path) -> None:
    path = client.trigger_savepoint(f"file://{tmp_path}/mine").result()
    assert Path(path).parent == tmp_path / "mine"
    assert read_savepoint_metadata(Path(path)).job_name == "numbers"
    assert client.get_job_status().result() is JobStatus.RUNNING


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_is_stopped_with_a_savepoint(client: JobClient, tmp_path: Path, drain: bool) -> None:
    path = client.stop_with_savepoint(drain, str(tmp_path / "mine")).result()
    client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert {operator.ended for operator in read_savepoint_metadata(Path(path)).operators} == {drain}


def test_a_savepoint_that_has_no_place_fails_later_not_at_the_call(client: JobClient) -> None:
    with pytest.raises(CheckpointFailedError, match="there is no directory for the savepoint"):
        client.trigger_savepoint().result()
    with pytest.raises(InvalidJobError, match="savepoint_directory needs a path in a file system"):
        client.stop_with_savepoint(False, "ftp://host/there").result()
    with pytest.raises(InvalidJobError, match="in UTF-8"):
        client.trigger_savepoint("/data/caf\udce9").result()
