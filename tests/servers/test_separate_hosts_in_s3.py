"""Hosts that share nothing but a bucket of a real S3 server: what stays and what is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from penstock.checkpoint.history import History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.storage_url import StorageUrl
from penstock.connectors.staging import staged_output
from penstock.connectors.two_phase.sink import AtLeastOnceSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.errors import StateElsewhereError
from penstock.ids import AttemptId, JobKey
from penstock.job import state_jobs
from penstock.job.attempt.shared_paths import remove_relays
from penstock.job.state_jobs import StoreWork
from penstock.state.backends.refs import FileRef
from penstock.state.local_dir import HostDir
from penstock.task.layout import AttemptLayout
from penstock.task.shuffle import level
from penstock.testing.servers.s3_server import S3Server
from tests.crash.separate_tasks import separate_tasks

pytestmark = pytest.mark.s3

BUCKET = "jobs"
JOB = "numbers"


@pytest.fixture
def place(s3: S3Server, request: pytest.FixtureRequest) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, request.node.name)


@pytest.fixture
def env(
    place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StreamExecutionEnvironment:
    """An environment whose subtasks run on hosts of their own, for one test."""
    for name in ("host-0", "host-1", "driver"):
        (tmp_path / name).mkdir()
    # `separate_tasks` replaces these; the values of before come back after the test.
    monkeypatch.setitem(vars(level), "run_subtask", vars(level)["run_subtask"])
    monkeypatch.setattr(HostDir, "_roots", HostDir._roots)
    monkeypatch.setattr(staged_output, "_MAX_ACKNOWLEDGED_BYTES", 16)
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(place),
        "execution.checkpointing.interval": "300 ms",
        "penstock.work-dir": str(tmp_path / "work"),
        "restart-strategy.type": "none",
        **{f"penstock.storage.{key}": value for key, value in place.options.items()},
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    separate_tasks(env, tmp_path, ())
    env.set_parallelism(2)
    return env


def test_a_woken_driver_removes_only_its_own_relays(place: StorageUrl) -> None:
    job_dir = JobDir(place, JobKey(JOB), place.options)
    for attempt in ("a1", "a2", "a10"):
        job_dir.storage.replace(f"relay/{attempt}/channels/1/b7-s0.arrow", b"records")
    remove_relays(job_dir, AttemptId("a2"))
    assert job_dir.storage.children("relay") == ["a10"]


def test_a_job_without_keyed_steps_leaves_nothing_on_its_hosts(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    got: list[str] = []
    numbers = env.from_source(
        NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.map(lambda n: f"{n:05d}" * 10, Types.STRING()).sink_to(AtLeastOnceSink(got.extend))
    env.execute(JOB)
    assert sorted(got) == [f"{n:05d}" * 10 for n in range(1, 201)]
    hosts = (tmp_path / "host-0", tmp_path / "host-1")
    assert [str(path) for host in hosts for path in host.rglob("*")] == []


def test_a_checkpoint_whose_task_runs_on_the_wrong_host_is_tried_again(
    env: StreamExecutionEnvironment,
    place: StorageUrl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Spark does when the cores of the right host are busy for longer than it waits."""
    misplaced = tmp_path / "misplaced"
    store = state_jobs.store

    def on_another_host_first(work: StoreWork, task_attempt: int) -> list[FileRef]:
        if work.files and not misplaced.exists():
            misplaced.touch()
            raise StateElsewhereError(work.files[0].name)
        return store(work, task_attempt)

    monkeypatch.setattr(state_jobs, "store", on_another_host_first)
    got: list[int] = []
    numbers = env.from_source(
        NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers"
    )
    totals = numbers.key_by(lambda n: n % 10, Types.LONG()).reduce(lambda a, b: a + b)
    totals.sink_to(AtLeastOnceSink(got.extend))
    env.execute(JOB)
    assert misplaced.exists()
    assert len(got) == 200
    history = History(JobDir(place, JobKey(JOB), place.options).storage)
    assert [c.failure for c in history.checkpoints() if c.failure] == []
    assert history.exceptions() == []


def test_a_task_on_a_host_that_joined_later_and_lacks_the_work_directory_leads_to_a_restart(
    env: StreamExecutionEnvironment,
    place: StorageUrl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env.configure(
        Configuration.from_dict(
            {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
        )
    )
    looks: list[Path] = []

    def missing(paths: Sequence[Path]) -> Mapping[Path, str]:
        looks.append(paths[0])
        return {} if len(looks) == 1 else {paths[0]: "host-2"}

    separate_tasks(env, tmp_path, (), missing)
    check, tasks = AttemptLayout.check_host, count()

    def check_host(layout: AttemptLayout) -> None:
        has_joined = next(tasks) >= 4
        check(replace(layout, shared=tmp_path / "host-2") if has_joined else layout)

    monkeypatch.setattr(AttemptLayout, "check_host", check_host)
    got: list[int] = []
    numbers = env.from_source(
        NumberSequenceSource(1, 200), WatermarkStrategy.no_watermarks(), "numbers"
    )
    totals = numbers.key_by(lambda n: n % 10, Types.LONG()).reduce(lambda a, b: a + b)
    totals.sink_to(AtLeastOnceSink(got.extend))
    env.execute(JOB)
    assert len(looks) == 2
    history = History(JobDir(place, JobKey(JOB), place.options).storage)
    (exception,) = history.exceptions()
    assert "host-2/a1, which the hosts shared that the attempt has looked at" in exception.message
    assert len(set(got)) == 200
