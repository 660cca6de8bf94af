"""Paths on the command line: what is neither a path nor in a store is refused by its option."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.checkpoint.storage import job_dir
from penstock.common.job_status import JobStatus
from penstock.storage.local_storage import LocalStorage
from tests.unit.cli.job_fixtures import job_directory, penstock

ELSEWHERE = "ftp://host/there"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("list", "--dir", ELSEWHERE), "'--dir'"),
        (("checkpoints", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("stop", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("stop", "count", "-p", ELSEWHERE), "'-p' / '--savepoint-path'"),
        (("cancel", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("cancel", ELSEWHERE), "JOB"),
        (("checkpoints", ELSEWHERE), "JOB"),
        (("savepoint", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("savepoint", "count", ELSEWHERE), "'[DIR]'"),
        (("savepoint", "--dispose", ELSEWHERE), "'--dispose'"),
        (("checkpoint", "trigger", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("checkpoint", "inspect", ELSEWHERE), "'PATH'"),
        (("channels", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("metrics", "count", "--dir", ELSEWHERE), "'--dir'"),
        (("run", "-s", ELSEWHERE, __file__), "'-s' / '--from-savepoint'"),
    ],
)
def test_a_url_of_another_scheme_is_refused_and_its_option_named(
    words: tuple[str, ...], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = penstock(*words)
    assert refused.exit_code == 2
    assert f"Error: Invalid value for {option}: {ELSEWHERE!r} is not a path in" in refused.stderr
    assert "or a place in a store: s3://bucket/path, gs://bucket/path" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["abfs-x", "http", "s3n"])
def test_any_other_scheme_is_refused(scheme: str) -> None:
    assert "Invalid value for '--dir'" in penstock("list", "--dir", f"{scheme}:///x").stderr


@pytest.mark.parametrize("url", ["s3:///x", "hdfs:///x", "gs://", "s3://key:secret@bucket/x"])
def test_a_url_without_a_bucket_or_with_credentials_is_refused(url: str) -> None:
    assert "Invalid value for '--dir'" in penstock("list", "--dir", url).stderr


def test_a_url_of_a_local_file_is_a_path(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count", ended=JobStatus.FINISHED)
    assert "count" in penstock("list", "-a", "--dir", f"file://{tmp_path}").stdout
    assert "(count): FINISHED" in penstock("checkpoints", f"file://{job.path}").stdout


def test_a_file_is_no_checkpoint_directory() -> None:
    assert f"{__file__!r} is a file" in penstock("list", "--dir", __file__).stderr


def test_a_store_that_refuses_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(LocalStorage):
        def children(self, directory: str) -> list[str]:
            raise PermissionError(errno.EACCES, "access is denied: set a key", "s3://jobs/there")

    monkeypatch.setattr(job_dir, "storage_at", lambda _: Refusing(Path()))
    refused = penstock("list", "--dir", "s3://jobs/there")
    assert refused.exit_code == 1
    assert refused.stderr == "Error: s3://jobs/there: access is denied: set a key\n"
