"""The files of in-flight data: who owns them, and when they are removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common import Types, WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.ids import JobKey
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, ScriptedSource
from tests.local_paths import local
from tests.unit.job.counting import checkpoint, launched
from tests.unit.support import environment, eventually

GO_ON = threading.Event()


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    GO_ON.clear()
    yield
    GO_ON.set()
    for job in launched:
        job.kill()
    launched.clear()


def delayed(number: int) -> int:
    GO_ON.wait(30)
    return number


def slow(number: int) -> int:
    time.sleep(0.01)
    return number


def unaligned(root: Path, **settings: str) -> StreamExecutionEnvironment:
    return environment(
        1,
        **{
            "execution__checkpointing__dir": str(root),
            "execution__checkpointing__interval": "1 h",
            "execution__checkpointing__unaligned__enabled": "true",
            "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
            "penstock__micro_batch__max_records": "20",
            "penstock__micro_batch__initial_records": "20",
            "restart_strategy__type": "none",
            **settings,
        },
    )


def add_source(env: StreamExecutionEnvironment, name: str, *script: Any) -> Any:
    source = ScriptedSource([*script, Idle()], Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)


def launch(env: StreamExecutionEnvironment) -> LaunchedJob:
    job = env._launch("in flight")
    job.result()
    launched.append(job)
    return job


def test_a_job_that_is_cancelled_leaves_no_copies_of_an_unfinished_checkpoint(
    tmp_path: Path,
) -> None:
    env = unaligned(tmp_path)
    much = add_source(env, "much", Burst(range(400))).decouple("decoupled").uid("decoupled")
    much.map(slow, Types.LONG()).sink_to(DiscardingSink())
    add_source(env, "late", Burst([1])).map(delayed, Types.LONG()).sink_to(DiscardingSink())
    job = launch(env)
    eventually(lambda: bool(job.micro_batches()))
    job.trigger_checkpoint()
    eventually(lambda: bool(list(tmp_path.glob("*/chk-*/in-flight/*/*/*"))))
    job.cancel()
    GO_ON.set()
    assert job.wait_for_end(20)
    assert not list(tmp_path.glob("*/chk-*"))


def backlogged(root: Path, **settings: str) -> LaunchedJob:
    env = unaligned(root, **settings)
    bursts = [Burst(range(start, start + 20)) for start in range(0, 600, 20)]
    numbers = add_source(env, "numbers", *bursts).decouple("decoupled").uid("decoupled")
    numbers.map(slow, Types.LONG()).uid("slow").sink_to(DiscardingSink()).uid("nowhere")
    return launch(env)


@pytest.mark.parametrize("wait", [1, 20, 60])
def test_restored_in_flight_data_of_another_job_gets_new_file_names(
    tmp_path: Path, wait: int
) -> None:
    """Both jobs are at their first attempt, so the names of what they write repeat."""
    first = backlogged(tmp_path / "first")
    eventually(lambda: sum(r.records_in for r in first.micro_batches()) >= wait)
    path = first.trigger_checkpoint().result(20).path
    first.cancel()
    assert first.wait_for_end(20)
    assert list(Path(path).glob("in-flight/*/*/*.arrow")), "nothing was in flight"
    second = backlogged(tmp_path / "second", execution__state_recovery__path=path)
    before = sum(1 for r in second.micro_batches())
    eventually(lambda: sum(1 for r in second.micro_batches()) > before + 20)
    checkpoint(second)
    assert second.status() is JobStatus.RUNNING


def test_a_recreated_job_directory_is_another_job_instance(tmp_path: Path) -> None:
    first = JobDir(tmp_path / "one", JobKey("job"))
    second = JobDir(tmp_path / "two", JobKey("job"))
    for place in (first, second):
        local(place.path).mkdir(parents=True)
    assert first.job_instance() == first.job_instance()
    assert first.job_instance() != second.job_instance()
