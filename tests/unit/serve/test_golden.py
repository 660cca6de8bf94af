"""Every call is made for every job directory that older versions left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from penstock.serve.rest.catalogue import SUPPORTED
from tests.compatibility.conftest import golden_jobs
from tests.unit.serve.serve_fixtures import get, server


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestClient]:
    shutil.copytree(request.param / "checkpoints", tmp_path / "checkpoints")
    with server(tmp_path / "checkpoints") as client:
        yield client


@pytest.mark.parametrize("client", golden_jobs(), indirect=True)
def test_every_call_answers_for_a_job_of_an_older_version(client: TestClient) -> None:
    jobs = get(client, "/jobs/overview")["jobs"]
    assert jobs
    for job in jobs:
        detail = get(client, f"/jobs/{job['jid']}")
        assert detail["vertices"]
        checkpoints = get(client, f"/jobs/{job['jid']}/checkpoints")["history"]
        values = {
            ":jobid": job["jid"],
            ":vertexid": detail["vertices"][0]["id"],
            ":checkpointid": str(checkpoints[0]["id"]) if checkpoints else "1",
            ":subtaskindex": "0",
            ":attempt": str(job["attempts"] - 1),
        }
        for endpoint in SUPPORTED:
            names = endpoint.path.split("/")
            skipped = {":triggerid", ":taskmanagerid", "jars"}
            if endpoint.method != "GET" or skipped & {*names}:
                continue
            path = "/".join(values.get(name, name) for name in names)
            response = client.get(path)
            # Old directories do not say how checkpoints were configured.
            expected = (200, 404) if "/checkpoints/" in path else (200,)
            assert response.status_code in expected, (path, response.text)


@pytest.mark.parametrize("client", golden_jobs("finished"), indirect=True)
def test_a_checkpoint_of_an_older_version_has_all_of_flinks_fields(client: TestClient) -> None:
    (job,) = get(client, "/jobs/overview")["jobs"]
    assert (job["state"], job["name"]) == ("FINISHED", "counts")
    found = get(client, "/jobs/counts/checkpoints")
    assert found["counts"]["completed"] == len(found["history"])
    first = found["history"][-1]
    assert first["className"] == "completed"
    assert {key for key in first if not key.startswith("penstock-")} == CHECKPOINT_FIELDS
    assert first["discarded"] is True
    vertices = get(client, "/jobs/counts")["vertices"]
    unknown = UNKNOWN if len(vertices) == 4 else 0
    assert first["num_acknowledged_subtasks"] == first["num_subtasks"] - unknown == 4
    detail = get(client, f"/jobs/counts/checkpoints/details/{first['id']}")
    vertex = next(v for v in detail["tasks"].values() if v["num_acknowledged_subtasks"])
    assert set(vertex) == TASK_FIELDS
    id_ = next(i for i, v in detail["tasks"].items() if v == vertex)
    subtasks = get(client, f"/jobs/counts/checkpoints/details/{first['id']}/subtasks/{id_}")
    assert set(subtasks) == TASK_FIELDS | {"summary", "subtasks"}
    assert all(set(s) - {"penstock-blocked-bytes"} == SUBTASK_FIELDS for s in subtasks["subtasks"])
    assert set(subtasks["summary"]["start_delay"]) == PERCENTILES


@pytest.mark.parametrize("client", golden_jobs("finished"), indirect=True)
def test_the_plan_of_an_ended_job_is_known_without_its_program(client: TestClient) -> None:
    found = get(client, "/jobs/counts/plan")["plan"]["nodes"]
    names = [name for node in found for name in node["penstock-operators"]]
    assert [name["uid"] for name in names][1:] == ["maybe", "count", "files"]
    edges = [edge for node in found for edge in node["inputs"]]
    # Older versions did not write them.
    assert len(found) == 4 or [edge["ship_strategy"] for edge in edges] == ["HASH"]


UNKNOWN = 4
"""Subtasks of operators without state, which stand alone: v1 and v2 do not name the stages."""
TASK_FIELDS = {
    "id",
    "status",
    "latest_ack_timestamp",
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "alignment_buffered",
    "processed_data",
    "persisted_data",
    "num_subtasks",
    "num_acknowledged_subtasks",
}
CHECKPOINT_FIELDS = TASK_FIELDS | {
    "className",
    "is_savepoint",
    "savepointFormat",
    "trigger_timestamp",
    "checkpoint_type",
    "tasks",
    "external_path",
    "discarded",
}
SUBTASK_FIELDS = {
    "className",
    "index",
    "status",
    "ack_timestamp",
    "end_to_end_duration",
    "checkpointed_size",
    "state_size",
    "checkpoint",
    "alignment",
    "start_delay",
    "unaligned_checkpoint",
    "aborted",
}
PERCENTILES = {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}
