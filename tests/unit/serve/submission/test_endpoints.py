"""The calls about programs and submitted jobs, as a client sees them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.serve.http.tokens import read_tokens
from penstock.serve.submission import endpoints
from penstock.serve.submission.settings import SubmissionSettings, default_upload_dir
from tests.unit.cli.job_fixtures import COUNT, penstock
from tests.unit.serve.serve_fixtures import get, server
from tests.unit.serve.submission.jobs import SHOW, kill_jobs
from tests.unit.serve.submission.test_programs import MAIN, zipped
from tests.unit.serve.test_guard import OPERATOR, READER, tokens_file
from tests.unit.support import eventually

LIMIT = 1 << 20
ALL = [*endpoints.ENDPOINTS, *endpoints.OWN_ENDPOINTS]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    directory = tmp_path / "checkpoints"
    settings = SubmissionSettings(directory, tmp_path / "uploads", 50, LIMIT, LIMIT, 3, 60)
    with server(directory, submission=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def no_processes_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_jobs(tmp_path)


def upload(client: TestClient, program: str | bytes, name: str = "job.py") -> str:
    response = client.post("/v1/jars/upload", files={"jarfile": (name, program)})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["status"] == "success"
    return str(answer["filename"].rpartition("/")[2])


def run(client: TestClient, program: str, **fields: Any) -> str:
    response = client.post(f"/v1/jars/{program}/run", json=fields)
    assert response.status_code == 200, response.text
    return str(response.json()["jobid"])


def ended(client: TestClient, job: str) -> bool:
    return bool(get(client, f"/submissions/{job}")["process-status"] == "ENDED")


# -- off by default -----------------------------------------------------------------------------


def test_a_server_runs_no_programs_by_default(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        assert get(client, "/config")["features"]["web-submit"] is False
        assert get(client, "/jobmanager/logs") == {"logs": []}
        calls = [(e.method, e.path) for e in ALL if e.path != "/jobmanager/logs"]
        for method, path in calls:
            path = path_of(path, "x")
            response = client.request(method, path)
            assert response.status_code == 403, path
            assert "--submission" in response.json()["errors"][0]
    assert list(tmp_path.iterdir()) == []


def test_submission_needs_tokens_also_on_loopback_addresses(tmp_path: Path) -> None:
    for option in ("--submission", "-Dpenstock.serve.submission.enabled=true"):
        result = penstock("serve", "--dir", tmp_path, option)
        assert result.exit_code == 2
        assert "every user of this machine" in result.stderr


def test_calls_that_run_programs_are_for_operators_only() -> None:
    readers = {e.path for e in ALL if not e.is_change}
    assert readers == {
        "/jars",
        "/submissions",
        "/submissions/:jobid",
        "/submissions/:jobid/logs",
        "/submissions/:jobid/logs/:logname",
        "/submissions/:jobid/logs/:logname/download",
        "/jobmanager/logs",
        "/jobmanager/logs/:logname",
    }


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    directory = tmp_path / "checkpoints"
    settings = SubmissionSettings(directory, tmp_path / "uploads", 50, LIMIT, LIMIT, 3, 60)
    tokens = read_tokens(tokens_file(tmp_path))
    with server(directory, submission=settings, tokens=tokens) as running:
        yield running


def as_(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_reader_uploads_runs_and_explains_nothing(guarded: TestClient) -> None:
    file = {"jarfile": ("job.py", SHOW)}
    uploaded = guarded.post("/jars/upload", files=file, headers=as_(OPERATOR))
    id_ = uploaded.json()["filename"].rpartition("/")[2]
    calls = [(e.method, path_of(e.path, id_)) for e in ALL if e.is_change]
    calls += [("HEAD", f"/jars/{id_}/plan"), ("GET", f"/jars/{id_}/plan%0A")]
    for prefix in ("", "/v1"):
        for method, path in calls:
            for headers, status in (({}, 401), (as_("x" * 20), 401), (as_(READER), 403)):
                response = guarded.request(method, prefix + path, headers=headers)
                assert response.status_code == status, (method, path)
        assert guarded.get(f"{prefix}/jars").status_code == 401
        listed = guarded.get(f"{prefix}/jars", headers=as_(READER)).json()["files"]
        assert [program["id"] for program in listed] == [id_]
        assert guarded.get(f"{prefix}/submissions", headers=as_(READER)).status_code == 200
    assert guarded.post(f"/jars/{id_}/plan", headers=as_(OPERATOR)).status_code == 200


def test_a_page_of_another_site_cannot_have_a_program_explained(client: TestClient) -> None:
    """An image of the address of a plan, for example."""
    id_ = upload(client, SHOW)
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Referer": "http://evil.example/"}):
        assert client.get(f"/jars/{id_}/plan", headers=headers).status_code == 403


def path_of(path: str, program: str) -> str:
    return path.replace(":jarid", program).replace(":jobid", "x").replace(":logname", "x")


# -- programs -----------------------------------------------------------------------------------


def test_programs_are_uploaded_listed_and_deleted_with_flinks_fields(client: TestClient) -> None:
    id_ = upload(client, SHOW)
    assert get(client, "/config")["features"]["web-submit"] is True
    listed = get(client, "/jars")
    (file,) = listed["files"]
    assert file.pop("uploaded") > 1.7e12
    assert file == {
        "id": id_, "name": "job.py", "entry": [{"name": "__main__", "description": None}]
    }  # fmt: skip
    assert client.delete(f"/jars/{id_}").json() == {}
    assert client.delete(f"/jars/{id_}").status_code == 400
    # Flink's statuses.
    assert client.post(f"/jars/{id_}/run", json={}).status_code == 400
    assert client.get(f"/jars/{id_}/plan").status_code == 400
    assert get(client, "/jars")["files"] == []


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("../../evil.py", b"", 400),
        ("/etc/cron.d/evil.py", b"", 400),
        ("evil.sh", b"", 400),
        ("evil.zip", b"no zip", 400),
        ("evil.zip", zipped(MAIN, ("../evil.py", b"")), 400),
        ("bomb.zip", zipped(MAIN, ("zeros", bytes(LIMIT))), 413),
        ("huge.py", bytes(LIMIT + 1), 413),
    ],
)
def test_a_bad_upload_is_refused_and_leaves_nothing(
    client: TestClient, tmp_path: Path, name: str, data: bytes, status: int
) -> None:
    before = set(tmp_path.rglob("*"))
    response = client.post("/jars/upload", files={"jarfile": (name, data)})
    assert response.status_code == status
    assert list(response.json()) == ["errors"]
    assert set(tmp_path.rglob("*")) == before


def test_a_body_of_unknown_length_ends_at_the_limit(client: TestClient, tmp_path: Path) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--ab\r\nContent-Disposition: form-data; filename="a.py"\r\n\r\n'
        for _ in range(100):
            sent += LIMIT // 10
            yield b"#" * (LIMIT // 10)

    headers = {"Content-Type": "multipart/form-data; boundary=ab"}
    response = client.post("/jars/upload", content=endless(), headers=headers)
    assert response.status_code == 413
    assert list((tmp_path / "uploads" / "programs").iterdir()) == []


def test_other_calls_do_not_take_bodies_as_large_as_a_program(client: TestClient) -> None:
    response = client.post("/jars/x/run", content=b" " * (LIMIT + 2))
    assert response.status_code == 413


def test_a_page_of_another_site_cannot_upload(client: TestClient) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Cookie": "a=b"}):
        response = client.post("/jars/upload", files={"f": ("a.py", b"")}, headers=headers)
        assert response.status_code == 403


# -- runs ---------------------------------------------------------------------------------------


def test_a_program_runs_as_a_job_that_the_server_shows_with_its_log(
    client: TestClient, tmp_path: Path
) -> None:
    program = upload(client, SHOW)
    secret = {"penstock.storage.s3.secret_access_key": "hunter22"}
    job = run(client, program, programArgsList=["--token", "t0p"], flinkConfiguration=secret)
    eventually(lambda: ended(client, job))
    assert get(client, f"/jobs/{job}")["state"] == "FINISHED"
    shown = get(client, f"/submissions/{job}")
    assert shown["arguments"] == ["--token", "***"]
    assert shown["settings"]["penstock.storage.s3.secret_access_key"] == "***"
    assert (shown["exit-code"], shown["program"]) == (0, program)
    assert [start["start"] for start in shown["starts"]] == [1]
    (log,) = get(client, f"/submissions/{job}/logs")["logs"]
    assert log["name"] == "start-1.log"
    path = f"/submissions/{job}/logs/start-1.log"
    whole = get(client, path)
    assert "Job 'show' has finished" in whole["text"]
    assert (whole["offset"], whole["next-offset"]) == (0, log["size"])
    rest = get(client, f"{path}?offset={log['size'] - 20}")
    assert whole["text"].endswith(rest["text"])
    first = get(client, f"{path}?length=10")
    assert (first["text"], first["next-offset"]) == ("seen\n", 5)
    downloaded = client.get(f"{path}/download")
    assert downloaded.text == whole["text"]
    assert downloaded.headers["content-type"].startswith("text/plain")
    (listed,) = get(client, "/jobmanager/logs")["logs"]
    assert listed["name"] == f"{job}.start-1.log"
    assert client.get(f"/jobmanager/logs/{listed['name']}").text == whole["text"]


@pytest.mark.parametrize(
    ("program", "said"), [("1 / 0", "ZeroDivisionError"), ("print('hi')", "without starting a job")]
)
def test_a_program_that_makes_no_job_is_a_bad_request(
    client: TestClient, program: str, said: str
) -> None:
    response = client.post(f"/jars/{upload(client, program)}/run", json={})
    assert response.status_code == 400
    assert said in response.json()["errors"][0]


@pytest.mark.parametrize(
    "fields", [{"jobId": "../x"}, {"parallelism": -1}, {"nothing": 1}, {"entryClass": "../a"}]
)
def test_a_bad_request_starts_nothing(client: TestClient, fields: dict[str, Any]) -> None:
    program = upload(client, zipped(("main.py", SHOW.encode())), "job.zip")
    assert client.post(f"/jars/{program}/run", json=fields).status_code == 400
    for parallelism in ("x", "-1", "1" * 5000):
        path = f"/jars/{program}/run?parallelism={parallelism}"
        assert client.post(path).status_code == 400
    both = {"programArgs": "a b", "programArgsList": ["a", "b"]}
    refused = client.post(f"/jars/{program}/run", json=both)
    assert (refused.status_code, "both" in refused.json()["errors"][0]) == (400, True)
    assert get(client, "/submissions") == {"submissions": []}


def test_what_the_body_does_not_say_is_read_from_the_query(client: TestClient) -> None:
    program = upload(client, SHOW)
    query = "?programArg=a,b&parallelism=2&allowNonRestoredState=true"
    response = client.post(f"/jars/{program}/run{query}")
    job = response.json()["jobid"]
    shown = get(client, f"/submissions/{job}")
    assert shown["arguments"] == ["a", "b"]
    assert shown["settings"]["parallelism.default"] == "2"
    eventually(lambda: ended(client, job))


def test_a_job_is_suspended_started_again_and_deleted_by_its_own_id(
    client: TestClient, tmp_path: Path
) -> None:
    program = upload(client, COUNT)
    arguments = [str(tmp_path / "out"), "100000", "0.01"]
    job = run(client, program, jobId="Mine", programArgsList=arguments)
    again = client.post(f"/jars/{program}/run", json={"jobId": "Mine"})
    assert again.status_code == 409
    assert client.post("/submissions/Mine/restart").status_code == 409
    assert client.delete("/submissions/Mine").status_code == 409
    assert client.post("/submissions/Mine/suspend").json() == {}
    eventually(lambda: ended(client, "Mine"))
    assert client.post("/submissions/Mine/suspend").status_code == 409
    assert client.post("/submissions/Mine/restart", json={"frsh": True}).status_code == 400
    restarted = client.post(f"/submissions/{job}/restart", json={})
    assert restarted.json() == {"jobid": job, "penstock-id": "Mine", "start": 2}
    client.post("/submissions/Mine/suspend")
    eventually(lambda: ended(client, "Mine"))
    assert client.delete("/submissions/Mine").json() == {}
    for path in ("/submissions/Mine", f"/submissions/{job}", "/submissions/Mine/logs"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        *("/jars/..%2F..%2Fetc%2Fpasswd/plan", "/submissions/..%2Fprograms", "/submissions/%00"),
        *("/jobmanager/logs/..%2F..%2Flock", "/jobmanager/logs/x", "/jobmanager/logs/.start-1.log"),
        *("/submissions/x/logs/start-1.log", "/submissions/.new-x/logs"),
    ],
)
def test_a_path_that_leads_elsewhere_is_not_found(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert list(response.json()) == ["errors"]


@pytest.mark.parametrize("query", ["offset=x", "length=1e9", "offset=" + "9" * 30, "offset=--1"])
def test_an_offset_that_is_no_number_is_refused(client: TestClient, query: str) -> None:
    program = upload(client, "1 / 0")
    client.post(f"/jars/{program}/run", json={"jobId": "failed"})
    assert client.get(f"/submissions/failed/logs/start-1.log?{query}").status_code == 400


def test_many_programs_at_once_do_not_block_other_calls(client: TestClient) -> None:
    program = upload(client, "import time; time.sleep(2)")
    statuses: list[int] = []

    def submit() -> None:
        statuses.append(client.post(f"/jars/{program}/run", json={}).status_code)

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert get(client, "/overview")["jobs-running"] == 0
    for thread in threads:
        thread.join()
    assert set(statuses) == {400, 503}
    assert statuses.count(400) >= 8


# -- plans --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_plan_is_shown_without_running_the_job(client: TestClient, method: str) -> None:
    program = upload(client, COUNT)
    arguments = "out,10,0"
    plan = client.request(method, f"/jars/{program}/plan?programArg={arguments}").json()["plan"]
    assert (plan["name"], plan["type"]) == ("count", "STREAMING")
    source, count = plan["nodes"]
    assert source["inputs"] == []
    (edge,) = count["inputs"]
    assert (edge["id"], edge["ship_strategy"]) == (source["id"], "HASH")
    assert all(len(node["id"]) == 32 for node in plan["nodes"])
    assert get(client, "/submissions") == {"submissions": []}


@pytest.mark.parametrize("program", ["1 / 0", "print(1)", "while True: print('[', flush=True)"])
def test_a_program_without_a_plan_is_a_bad_request(
    client: TestClient, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.serve.submission.programs.plans.explain.__defaults__", (5.0,))
    response = client.get(f"/jars/{upload(client, program)}/plan")
    assert response.status_code == 400
    assert list(response.json()) == ["errors"]


def test_a_program_that_prints_without_end_fills_no_disk(client: TestClient) -> None:
    program = upload(client, "while True: print('x' * 100_000)")
    began = time.monotonic()
    response = client.get(f"/jars/{program}/plan")
    assert response.status_code == 400
    assert "prints more than 16 MB" in response.json()["errors"][0]
    assert time.monotonic() - began < 30


# -- settings -----------------------------------------------------------------------------------


def test_each_checkpoint_directory_has_an_upload_directory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    first, second = default_upload_dir(Path("/a")), default_upload_dir(Path("/b"))
    assert first != second
    assert first.parent == second.parent == Path("/state/penstock")
