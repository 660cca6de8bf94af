from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_facts import JobFacts
from penstock.common.job_status import JobStatus
from penstock.serve.jobs.hex_ids import hex_id, is_hex_id
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, set_driver
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.support import eventually


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_every_call_is_there_with_and_without_the_version(tmp_path: Path, prefix: str) -> None:
    job_directory(tmp_path, "count", ended=JobStatus.FINISHED)
    with server(tmp_path) as client:
        assert get(client, f"{prefix}/overview")["jobs-finished"] == 1
        assert get(client, f"{prefix}/config")["features"]["web-cancel"] is True
        expected = {"jobs": [{"id": hex_id("count"), "status": "FINISHED"}]}
        assert get(client, f"{prefix}/jobs") == expected
        (job,) = get(client, f"{prefix}/jobs/overview")["jobs"]
        assert (job["start-time"], job["end-time"], job["duration"]) == (10**6, 2 * 10**6, 10**6)
        for id_ in ("count", hex_id("count")):
            assert get(client, f"{prefix}/jobs/{id_}")["name"] == "count"


def test_a_running_job_is_shown_and_its_end_too(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    with server(tmp_path) as http:

        def state() -> str:
            (job,) = get(http, "/jobs/overview")["jobs"]
            return str(job["state"])

        try:
            eventually(lambda: state() == "RUNNING")
        finally:
            end(client)
        eventually(lambda: state() == "CANCELED")


def test_a_job_that_is_deleted_is_not_shown_any_more(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    with server(tmp_path) as client:
        assert get(client, "/jobs/count")["state"] == "SUSPENDED"
        job.storage.delete_tree("")
        assert client.get("/jobs/count").status_code == 404
        eventually(lambda: get(client, "/jobs") == {"jobs": []})


def test_an_unknown_job_is_not_found_in_flinks_form(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        response = client.get(f"/jobs/{'0' * 32}")
        assert (response.status_code, response.json()) == (
            404,
            {"errors": [f"Job {'0' * 32} not found"]},
        )


def test_ids_for_flinks_clients_are_stable_and_have_32_hexadecimal_digits() -> None:
    assert hex_id("count-2c43e0db") == "6a0b4ef895dec4c8e57e8161c78a97a7"
    assert hex_id("a" * 32) == "a" * 32
    assert is_hex_id(hex_id("\udc80"))


def test_a_job_whose_driver_died_is_restarting_only_while_a_supervisor_may_start_it(
    tmp_path: Path,
) -> None:
    job = job_directory(tmp_path, "count")
    with server(tmp_path) as client:

        def status() -> str:
            return str(get(client, "/jobs/count/status")["status"])

        set_driver(job, pid=1, beat=time.time() - 60)
        assert status() == "SUSPENDED"
        job.write_facts(JobFacts("count", 1_000.0, supervised=True))
        assert status() == "RESTARTING"
        set_driver(job, pid=1, beat=time.time() - 600)
        assert status() == "SUSPENDED"
        assert get(client, "/jobs/count")["penstock-status"] == "DIED"


def test_a_job_that_cannot_be_read_any_more_does_not_hide_the_others(tmp_path: Path) -> None:
    job_directory(tmp_path, "a")
    damaged = job_directory(tmp_path, "b")
    damaged.storage.replace("journal/000000000001", b"{")
    with server(tmp_path) as client:
        jobs = {j["name"]: j for j in get(client, "/jobs/overview")["jobs"]}
        assert jobs["b"]["penstock-status"] == "DAMAGED"
        assert jobs["a"]["penstock-status"] == jobs["a"]["state"] == "SUSPENDED"


def test_a_job_directory_that_another_job_has_taken_is_read_anew(tmp_path: Path) -> None:
    client_job = endless_job(tmp_path, execution__checkpointing__interval="50 ms")
    with server(tmp_path) as client:
        (job,) = get(client, "/jobs")["jobs"]
        path = f"/jobs/{job['id']}/checkpoints"
        eventually(lambda: get(client, path)["counts"]["completed"] > 2)
        end(client_job)
        before = get(client, path)
        (directory,) = tmp_path.iterdir()
        shutil.rmtree(directory)
        again = endless_job(tmp_path, execution__checkpointing__interval="50 ms")
        eventually(lambda: get(client, path)["counts"]["completed"] > 0)
        end(again)
        after = get(client, path)
        first = after["history"][-1]
        assert first["id"] == 1
        assert first["trigger_timestamp"] > before["history"][0]["trigger_timestamp"]


def test_a_job_that_is_moved_into_the_directory_is_shown(tmp_path: Path) -> None:
    job = job_directory(tmp_path / "elsewhere", "count")
    (tmp_path / "here").mkdir()
    with server(tmp_path / "here") as client:
        assert get(client, "/jobs") == {"jobs": []}
        Path(str(job.path)).rename(tmp_path / "here" / "count")
        assert get(client, "/jobs/count")["penstock-path"] == str(tmp_path / "here" / "count")
        assert client.get("/jobs/elsewhere").status_code == 404
