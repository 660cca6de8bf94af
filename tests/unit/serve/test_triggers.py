from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.common.job_status import JobStatus
from penstock.serve.jobs.disposals import Disposals
from penstock.serve.jobs.hex_ids import hex_id
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, set_driver
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.support import eventually


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    job = endless_job(tmp_path / "checkpoints", execution__checkpointing__interval="1 h")
    with server(tmp_path / "checkpoints") as client:
        eventually(lambda: get(client, "/jobs/overview")["jobs"][0]["state"] == "RUNNING")
        yield client
    if not job.get_job_execution_result().done():
        end(job)


def only(client: TestClient) -> str:
    (job,) = get(client, "/jobs")["jobs"]
    return str(job["id"])


def completed(client: TestClient, path: str) -> Any:
    eventually(lambda: get(client, path)["status"]["id"] == "COMPLETED")
    return get(client, path)["operation"]


def test_a_savepoint_is_written_where_the_body_says(client: TestClient, tmp_path: Path) -> None:
    job = only(client)
    body = {"target-directory": str(tmp_path / "s"), "cancel-job": False, "formatType": None}
    answer = client.post(f"/v1/jobs/{job}/savepoints", json=body)
    assert answer.status_code == 202
    trigger = answer.json()["request-id"]
    location = completed(client, f"/v1/jobs/{job}/savepoints/{trigger}")["location"]
    assert Path(location).parent == tmp_path / "s"
    assert (Path(location) / "_metadata").exists()
    found = get(client, f"/jobs/{job}/checkpoints")
    assert found["latest"]["savepoint"]["external_path"] == location
    assert found["latest"]["savepoint"]["checkpoint_type"] == "SAVEPOINT"
    assert found["counts"]["completed"] == 1


def test_a_trigger_that_comes_twice_makes_one_savepoint(client: TestClient, tmp_path: Path) -> None:
    job, trigger = only(client), uuid.uuid4().hex
    body = {"target-directory": str(tmp_path / "s"), "triggerId": trigger}
    for _ in range(3):
        answer = client.post(f"/jobs/{job}/savepoints", json=body)
        assert (answer.status_code, answer.json()) == (202, {"request-id": trigger})
    first = completed(client, f"/jobs/{job}/savepoints/{trigger}")
    assert client.post(f"/jobs/{job}/savepoints", json=body).status_code == 202
    assert completed(client, f"/jobs/{job}/savepoints/{trigger.upper()}") == first
    assert len(list((tmp_path / "s").iterdir())) == 1


def test_a_checkpoint_is_triggered(client: TestClient) -> None:
    job = only(client)
    answer = client.post(f"/jobs/{job}/checkpoints", json={"checkpointType": "CONFIGURED"})
    trigger = answer.json()["request-id"]
    operation = completed(client, f"/jobs/{job}/checkpoints/{trigger}")
    assert operation == {"checkpointId": 1, "failureCause": None}
    detail = get(client, f"/jobs/{job}/checkpoints/details/1")
    assert (detail["status"], detail["checkpoint_type"]) == ("COMPLETED", "CHECKPOINT")
    assert detail["num_acknowledged_subtasks"] == detail["num_subtasks"] == 4
    vertices = get(client, f"/jobs/{job}")["vertices"]
    assert set(detail["tasks"]) == {vertex["id"] for vertex in vertices}
    for vertex in ("remember", vertices[1]["id"]):
        found = get(client, f"/jobs/{job}/checkpoints/details/1/subtasks/{vertex}")
        assert [subtask["status"] for subtask in found["subtasks"]] == ["completed"] * 2


def test_a_failed_savepoint_is_completed_with_its_cause(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = only(client)
    body = {"target-directory": str(tmp_path / "file" / "s")}
    trigger = client.post(f"/jobs/{job}/savepoints", json=body).json()["request-id"]
    cause = completed(client, f"/jobs/{job}/savepoints/{trigger}")["failure-cause"]
    assert set(cause) == {"class", "stack-trace", "serialized-throwable"}
    assert "file" in cause["stack-trace"]


def test_a_job_is_stopped_with_a_savepoint(client: TestClient, tmp_path: Path) -> None:
    job = only(client)
    body = {"targetDirectory": str(tmp_path / "s"), "drain": False}
    answer = client.post(f"/jobs/{job}/stop", json=body)
    assert answer.status_code == 202
    path = f"/jobs/{job}/savepoints/{answer.json()['request-id']}"
    assert Path(completed(client, path)["location"]).parent == tmp_path / "s"
    eventually(lambda: get(client, f"/jobs/{job}/status") == {"status": "FINISHED"})
    assert get(client, f"/jobs/{job}")["penstock-status"] == "STOPPED"
    result = get(client, f"/jobs/{job}/execution-result")
    assert result["status"] == {"id": "COMPLETED"}
    assert result["job-execution-result"]["application-status"] == "SUCCEEDED"
    assert client.patch(f"/jobs/{job}?mode=cancel").status_code == 409


def test_a_job_is_canceled_and_canceling_it_again_is_no_error(client: TestClient) -> None:
    job = only(client)
    answer = client.patch(f"/jobs/{job}?mode=cancel")
    assert (answer.status_code, answer.json()) == (202, {})
    eventually(lambda: get(client, f"/jobs/{job}/status") == {"status": "CANCELED"})
    assert client.patch(f"/jobs/{job}").status_code == 202
    later = client.post(f"/jobs/{job}/savepoints", json={"target-directory": "/tmp/s"})
    assert later.status_code == 409
    assert "its status is CANCELED" in later.json()["errors"][0]


def test_a_savepoint_can_be_deleted_and_only_one_of_a_job_here(
    client: TestClient, tmp_path: Path
) -> None:
    job = only(client)
    body = {"target-directory": str(tmp_path / "s")}
    trigger = client.post(f"/jobs/{job}/savepoints", json=body).json()["request-id"]
    path = completed(client, f"/jobs/{job}/savepoints/{trigger}")["location"]
    copy = tmp_path / "elsewhere"
    with server(copy) as other:
        answer = other.post("/savepoint-disposal", json={"savepoint-path": path})
        failed = completed(other, f"/savepoint-disposal/{answer.json()['request-id']}")
        assert "not in this directory" in failed["failure-cause"]["stack-trace"]
    answer = client.post("/savepoint-disposal", json={"savepoint-path": path})
    assert completed(client, f"/savepoint-disposal/{answer.json()['request-id']}") == {}
    assert not Path(path).exists()
    assert get(client, f"/jobs/{job}/checkpoints")["history"][0]["discarded"] is True


def test_a_disposal_with_a_trigger_that_comes_twice_is_done_once(
    client: TestClient, tmp_path: Path
) -> None:
    job = only(client)
    body = {"target-directory": str(tmp_path / "s")}
    trigger = client.post(f"/jobs/{job}/savepoints", json=body).json()["request-id"]
    path = completed(client, f"/jobs/{job}/savepoints/{trigger}")["location"]
    for _ in range(2):
        sent = {"savepoint-path": path, "triggerId": "a" * 32}
        answer = client.post("/savepoint-disposal", json=sent)
        assert answer.json() == {"request-id": "a" * 32}
        assert completed(client, f"/savepoint-disposal/{'a' * 32}") == {}


def test_a_disposal_that_goes_on_is_in_progress() -> None:
    disposals = Disposals()
    assert disposals.begin("a")
    assert not disposals.begin("a")
    assert (disposals.is_going_on("a"), disposals.result("a")) == (True, None)
    disposals.end("a", "no")
    assert (disposals.is_going_on("a"), disposals.result("a")) == (False, ("no",))
    assert not disposals.begin("a")
    for number in range(2000):
        disposals.begin(str(number))
        disposals.end(str(number), None)
    assert disposals.result("a") is None
    assert disposals.result("1999") == (None,)


def test_each_kind_of_trigger_has_a_status_call_of_its_own(
    client: TestClient, tmp_path: Path
) -> None:
    job = only(client)
    body = {"target-directory": str(tmp_path / "s"), "triggerId": "a" * 32}
    assert client.post(f"/jobs/{job}/savepoints", json=body).status_code == 202
    assert client.get(f"/jobs/{job}/checkpoints/{'a' * 32}").status_code == 404
    completed(client, f"/jobs/{job}/savepoints/{'a' * 32}")
    answer = client.get(f"/jobs/{job}/checkpoints/{'a' * 32}")
    assert answer.status_code == 404
    assert "There is no checkpoint operation" in answer.json()["errors"][0]
    client.post(f"/jobs/{job}/checkpoints", json={"triggerId": "b" * 32})
    assert completed(client, f"/jobs/{job}/checkpoints/{'b' * 32}")["checkpointId"] == 2
    assert client.get(f"/jobs/{job}/savepoints/{'b' * 32}").status_code == 404


@pytest.mark.parametrize(
    ("status", "code"), [(JobStatus.FINISHED, 409), (JobStatus.FAILED, 409), (None, 409)]
)
def test_a_job_without_a_driver_cannot_be_canceled(
    tmp_path: Path, status: JobStatus | None, code: int
) -> None:
    job_directory(tmp_path, "count", ended=status)
    with server(tmp_path) as client:
        assert client.patch("/jobs/count?mode=cancel").status_code == code


def test_a_request_whose_driver_died_is_completed_with_a_failure(tmp_path: Path) -> None:
    job = job_directory(tmp_path, "count")
    set_driver(job, pid=1)
    with server(tmp_path) as client:
        trigger = client.post("/jobs/count/checkpoints").json()["request-id"]
        path = f"/jobs/count/checkpoints/{trigger}"
        assert get(client, path)["status"] == {"id": "IN_PROGRESS"}
        set_driver(job, pid=1, beat=1.0)
        failure = get(client, path)["operation"]["failureCause"]
        assert "no driver is running the job any more" in failure["stack-trace"]
        again = client.post("/jobs/count/checkpoints", json={"triggerId": trigger})
        assert again.json() == {"request-id": trigger}


@pytest.mark.parametrize(
    ("path", "body", "code", "text"),
    [
        ("savepoints", {}, 400, "Config key [execution.checkpointing.savepoint-dir] is not set"),
        ("stop", {}, 400, "Property [targetDirectory] must be provided"),
        ("savepoints", {"target-directory": "relative"}, 400, "must be absolute"),
        ("savepoints", {"target-directory": "ftp://x/y"}, 400, "must be a path"),
        ("savepoints", {"target-directory": 7}, 400, "Expected `str"),
        ("savepoints", {"triggerId": "../../etc"}, 400, ""),
        ("savepoints", {"target-directory": "/s", "formatType": "NATIVE"}, 400, "CANONICAL"),
        ("checkpoints", {"checkpointType": "FULL"}, 400, "CONFIGURED"),
        ("checkpoints", {"checkpointType": "?"}, 400, "Bad request received"),
        ("checkpoints", {"triggerId": "x" * 32}, 400, "32 hexadecimal digits"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(
    client: TestClient, path: str, body: dict[str, Any], code: int, text: str
) -> None:
    answer = client.post(f"/jobs/{only(client)}/{path}", json=body)
    assert answer.status_code == code
    assert text in answer.json()["errors"][0]


def test_an_unknown_trigger_or_mode_is_refused(tmp_path: Path) -> None:
    job_directory(tmp_path, "count")
    with server(tmp_path) as client:
        for trigger in ("0" * 32, "x", "%2e%2e%2fdriver"):
            response = client.get(f"/jobs/{hex_id('count')}/savepoints/{trigger}")
            assert response.status_code == 404
        assert client.patch("/jobs/count?mode=stop").status_code == 308
        assert client.patch("/jobs/count?mode=x").status_code == 400
