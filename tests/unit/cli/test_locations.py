"""Paths on the command line: what is not a local or shared path is refused by its option."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.job_status import JobStatus
from tests.unit.cli.job_fixtures import job_directory, penstock

BUCKET = "s3a://bucket/there"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("list", "--dir", BUCKET), "'--dir'"),
        (("checkpoints", "count", "--dir", BUCKET), "'--dir'"),
        (("stop", "count", "--dir", BUCKET), "'--dir'"),
        (("stop", "count", "-p", BUCKET), "'-p' / '--savepoint-path'"),
        (("cancel", "count", "--dir", BUCKET), "'--dir'"),
        (("cancel", BUCKET), "JOB"),
        (("checkpoints", BUCKET), "JOB"),
        (("savepoint", "count", "--dir", BUCKET), "'--dir'"),
        (("savepoint", "count", BUCKET), "'[DIR]'"),
        (("savepoint", "--dispose", BUCKET), "'--dispose'"),
        (("checkpoint", "trigger", "count", "--dir", BUCKET), "'--dir'"),
        (("checkpoint", "inspect", BUCKET), "'PATH'"),
        (("channels", "count", "--dir", BUCKET), "'--dir'"),
        (("metrics", "count", "--dir", BUCKET), "'--dir'"),
        (("run", "-s", BUCKET, __file__), "'-s' / '--from-savepoint'"),
    ],
)
def test_a_url_of_an_object_store_is_refused_and_its_option_named(
    words: tuple[str, ...], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = penstock(*words)
    assert refused.exit_code == 2
    assert f"Error: Invalid value for {option}: {BUCKET!r} is not a path in" in refused.stderr
    assert "object stores such as s3:// are not in this version" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["hdfs", "gs", "abfs-x", "S3"])
def test_any_other_scheme_is_refused(scheme: str) -> None:
    assert "Invalid value for '--dir'" in penstock("list", "--dir", f"{scheme}:///x").stderr


def test_a_url_of_a_local_file_is_a_path(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count", ended=JobStatus.FINISHED)
    assert "count" in penstock("list", "-a", "--dir", f"file://{tmp_path}").stdout
    assert "(count): FINISHED" in penstock("checkpoints", f"file://{job.path}").stdout


def test_a_file_is_no_checkpoint_directory() -> None:
    assert f"{__file__!r} is a file" in penstock("list", "--dir", __file__).stderr
