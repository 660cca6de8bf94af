"""Uploads that killed processes leave below a job's directory in a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted, CheckpointIdsReserved
from penstock.common.storage_url import StorageUrl
from penstock.errors import FencedError
from penstock.ids import AttemptId, JobKey
from penstock.job.attempt.shared_paths import remove_relays
from penstock.job.restore.retained_snapshots import RetainedSnapshots
from penstock.state.local_dir import HostDir
from penstock.storage.clients.s3_uploads import MultipartUploads
from penstock.storage.storages import storage_at
from penstock.task.layout import AttemptLayout
from penstock.testing.servers.s3_server import S3Server

pytestmark = pytest.mark.s3

OLD = [
    "chk-3/in-flight",
    "connectors/a1/files/a1/3-0.upload",
    "relay/a1/sinks/files/work/f",
    "shared/count/0/000000000007-a1-b7-t0-s0-a9-0.bundle",
]
OF_THE_SUCCESSOR = [
    "chk-13/in-flight",
    "connectors/a1/files/a3/13-0.upload",
    "relay/a3/sinks/files/work/f",
    "shared/count/0/000000000007-a3-b7-t0-s0-a9-0.bundle",
]


@pytest.fixture
def job_dir(s3: S3Server, request: pytest.FixtureRequest) -> JobDir:
    s3.create_bucket("jobs")
    return JobDir(s3.url("jobs", request.node.name), JobKey("orders"))


def uploads(job_dir: JobDir) -> MultipartUploads:
    assert isinstance(job_dir.path, StorageUrl)
    found = MultipartUploads.of(job_dir.path)
    assert found is not None
    return found


def begin(job_dir: JobDir, paths: list[str]) -> None:
    for path in paths:
        target = job_dir.path
        for name in path.split("/"):
            target = target / name
        assert isinstance(target, StorageUrl)
        uploads(job_dir).create(target)


def begun(job_dir: JobDir) -> list[str]:
    prefix = f"{job_dir.path.path}/" if isinstance(job_dir.path, StorageUrl) else ""
    return [url.path.removeprefix(prefix) for url, _ in uploads(job_dir).begun(prefix)]


def taken(job_dir: JobDir, attempt: str) -> Journal:
    journal = Journal(job_dir.storage, job_dir.key)
    journal.state()
    journal.append(AttemptStarted(attempt, 1.0, "host", 1))
    return journal


def layout(job_dir: JobDir, attempt: str, tmp_path: Path) -> AttemptLayout:
    local = HostDir(tmp_path, "orders")
    return AttemptLayout(tmp_path, local, AttemptId(attempt), job_dir.path, job_dir.key)


def test_a_start_removes_the_unfinished_uploads_of_dead_attempts_and_no_others(
    job_dir: JobDir, tmp_path: Path
) -> None:
    taken(job_dir, "a1").append(CheckpointIdsReserved("a1", 10, 1.0))
    begin(job_dir, [*OLD, *OF_THE_SUCCESSOR])
    journal = taken(job_dir, "a2")
    RetainedSnapshots(job_dir, journal).remove_leftovers(layout(job_dir, "a2", tmp_path))
    remove_relays(job_dir, AttemptId("a2"))
    assert begun(job_dir) == OF_THE_SUCCESSOR
    assert storage_at(job_dir.path).children("relay") == []


def test_a_driver_that_is_replaced_while_it_cleans_up_removes_no_uploads(
    job_dir: JobDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(job_dir, "a1").append(CheckpointIdsReserved("a1", 10, 1.0))
    begin(job_dir, OLD)
    retained = RetainedSnapshots(job_dir, taken(job_dir, "a2"))
    monkeypatch.setattr(RetainedSnapshots, "_sweep", lambda *_: taken(job_dir, "a3"))
    with pytest.raises(FencedError, match="a3"):
        retained.remove_leftovers(layout(job_dir, "a2", tmp_path))
    assert begun(job_dir) == OLD
