"""Requests to run a program: Flink's fields, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidSubmissionError
from penstock.serve.submission.run_request import JobSpec, RunRequest, job_spec

DIRECTORY = Path("/checkpoints")


def spec(**fields: Any) -> JobSpec:
    return job_spec(RunRequest.parse(msgspec.json.encode(fields)), DIRECTORY, {})


def test_flinks_fields_become_settings() -> None:
    found = spec(
        entryClass="main",
        programArgsList=["--in", "a b"],
        parallelism=3,
        jobId="0123456789ABCDEF0123456789abcdef",
        allowNonRestoredState=True,
        savepointPath="/savepoints/1",
        claimMode="CLAIM",
        flinkConfiguration={"execution.checkpointing.interval": "10 s"},
    )
    assert found == JobSpec(
        job="0123456789abcdef0123456789abcdef",
        arguments=["--in", "a b"],
        settings={
            "execution.checkpointing.dir": "/checkpoints",
            "execution.checkpointing.interval": "10 s",
            "execution.state-recovery.claim-mode": "CLAIM",
            "execution.state-recovery.ignore-unclaimed-state": "true",
            "parallelism.default": "3",
            "penstock.job-id": "0123456789abcdef0123456789abcdef",
        },
        restore_path="/savepoints/1",
    )


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"jobId":null,"savepointPath":""}'])
def test_a_job_without_an_id_is_a_job_of_its_own(body: bytes) -> None:
    ids = {job_spec(RunRequest.parse(body), DIRECTORY, {}).job for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id_) == 32 and int(id_, 16) >= 0 for id_ in ids)


def test_arguments_in_one_text_are_split_as_by_a_shell() -> None:
    assert spec(programArgs="--a 'b c' d").arguments == ["--a", "b c", "d"]
    assert spec(programArgs="x", programArgsList=[]).arguments == ["x"]
    assert spec(programArgs="", programArgsList=["y"]).arguments == ["y"]
    with pytest.raises(InvalidSubmissionError, match="use programArgsList only"):
        spec(programArgs="x", programArgsList=["y"])


def test_what_only_the_first_start_restores_is_no_setting_of_the_job() -> None:
    """Or a job that died would start from it again, and not from its newest checkpoint."""
    settings = {"execution.savepoint.path": "/sp", "penstock.recovery.fresh": "true"}
    found = spec(flinkConfiguration=settings)
    assert (found.restore_path, found.fresh) == ("/sp", True)
    assert set(found.settings) == {"execution.checkpointing.dir", "penstock.job-id"}


def test_a_job_gets_the_settings_of_the_server_and_overrides_them() -> None:
    defaults = {"penstock.storage.s3.region": "here", "state.backend": "rocksdb"}
    request = RunRequest(flink_configuration={"state.backend.type": "memory"}, job_id="mine")
    assert job_spec(request, DIRECTORY, defaults).settings == {
        "execution.checkpointing.dir": "/checkpoints",
        "penstock.job-id": "mine",
        "penstock.storage.s3.region": "here",
        "state.backend.type": "memory",
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"jobId": "../../etc"},
        {"jobId": "-x"},
        {"jobId": "a/b"},
        {"jobId": "a" * 129},
        {"parallelism": 0},
        {"parallelism": "many"},
        {"claimMode": "LEGACY"},
        {"savepointPath": "ftp://host/sp"},
        {"programArgs": "'open"},
        {"programArgsList": ["a\0b"]},
        {"programArgsList": ["a" * 200_000]},
        {"programArgsList": [1]},
        {"flinkConfiguration": {"paralelism.default": "1"}},
        {"flinkConfiguration": {"parallelism.default": "none"}},
        {"flinkConfiguration": {"execution.checkpointing.dir": "/elsewhere"}},
        {"flinkConfiguration": {"state.checkpoints.dir": "/elsewhere"}},
        {"flinkConfiguration": {"pipeline.name": "a\nparallelism.default: 7"}},
        {"flinkConfiguration": {"spark.a": {"b": "c"}}},
        {"unknown": 1},
    ],
)
def test_a_value_that_cannot_be_used_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSubmissionError):
        spec(**fields)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":1e999}', b'"x"']
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidSubmissionError):
        RunRequest.parse(body)


def test_the_reason_of_a_refusal_hides_credentials() -> None:
    with pytest.raises(InvalidSubmissionError) as refused:
        spec(savepointPath="ftp://user:s3cret@host/sp")
    assert "s3cret" not in str(refused.value)
