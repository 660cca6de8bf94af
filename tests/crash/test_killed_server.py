"""`penstock serve` is killed with -9 while jobs run that were submitted to it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.ids import JobKey
from penstock.testing.servers.free_port import free_port
from tests.unit.cli.job_fixtures import COUNT
from tests.unit.serve.submission.jobs import counted, kill_jobs
from tests.unit.serve.test_guard import OPERATOR, tokens_file
from tests.unit.support import eventually

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

NUMBERS = 600


class ServeProcess:
    """A `penstock serve --submission` over the directories below a root."""

    def __init__(self, root: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "penstock.cli.main", "serve", "--submission"]
        options = ["--dir", str(root / "checkpoints"), "--port", str(port)]
        options += ["-D", f"penstock.serve.upload-dir={root / 'uploads'}"]
        options += ["--tokens", str(tokens_file(root))]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        with (root / "server.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *options], env=clean, stderr=log)
        self.http = httpx2.Client(
            base_url=f"http://localhost:{port}",
            headers={"Authorization": f"Bearer {OPERATOR}"},
            timeout=60,
        )
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "the server has ended"
        with suppress(httpx2.TransportError):
            return bool(self.http.get("/overview").status_code == 200)
        return False

    def get(self, path: str) -> Any:
        response = self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def upload(self, program: str) -> str:
        response = self.http.post("/jars/upload", files={"jarfile": ("count.py", program)})
        assert response.status_code == 200, response.text
        return str(response.json()["filename"]).rpartition("/")[2]

    def exit_code(self, job: str) -> int:
        """Wait for the end of the process of a job."""
        path = f"/submissions/{job}"
        eventually(lambda: bool(self.get(path)["process-status"] == "ENDED"), 120, 0.1)
        return int(self.get(path)["exit-code"])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.http.close()


@contextmanager
def serving(root: Path) -> Iterator[ServeProcess]:
    server = ServeProcess(root)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def no_processes_left(tmp_path: Path) -> Iterator[None]:
    yield
    kill_jobs(tmp_path)


def arguments(output: Path) -> dict[str, Any]:
    small = {"penstock.micro-batch.max-records": "20"}
    return {"programArgsList": [str(output), str(NUMBERS), "0.002"], "flinkConfiguration": small}


def attempts(root: Path, job: str) -> int:
    directory = JobDir(root / "checkpoints", JobKey(job))
    return len(Journal(directory.storage, directory.key).state().attempts)


def test_a_job_goes_on_and_ends_once_and_the_next_server_has_its_logs(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        program = server.upload(COUNT)
        body = arguments(tmp_path / "out")
        started = server.http.post(f"/jars/{program}/run", json=body)
        assert started.status_code == 200, started.text
        job = started.json()["jobid"]
        before = server.get(f"/submissions/{job}")
        assert before["process-status"] == "RUNNING"
    with serving(tmp_path) as server:
        (found,) = server.get("/submissions")["submissions"]
        assert (found["jobid"], found["pid"]) == (job, before["pid"])
        assert [p["id"] for p in server.get("/jars")["files"]] == [program]
        duplicate = server.http.post(f"/jars/{program}/run", json={**body, "jobId": job})
        assert duplicate.status_code == 409
        assert server.exit_code(job) == 0
        assert server.get(f"/jobs/{job}")["state"] == "FINISHED"
        log = server.get(f"/submissions/{job}/logs/start-1.log")["text"]
        assert "starts from scratch" in log
        assert "has finished" in log
        assert log.endswith("done\n")
    assert attempts(tmp_path, job) == 1
    assert len(counted(tmp_path)) == len(set(counted(tmp_path))) == NUMBERS


MOMENTS = {
    "staged": "jobs/.new-*/program",
    "complete": "jobs/mine",
    "process-created": "jobs/mine/starts/1/driver.log",
    "claimed": "jobs/mine/starts/1/process.json",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_whose_submission_the_server_does_not_survive_runs_once_or_was_never_accepted(
    tmp_path: Path, moment: str
) -> None:
    with serving(tmp_path) as server:
        program = server.upload(COUNT)
        body = {**arguments(tmp_path / "out"), "jobId": "mine"}

        def submit() -> None:
            with suppress(httpx2.HTTPError, RuntimeError):
                server.http.post(f"/jars/{program}/run", json=body)

        client = threading.Thread(target=submit)
        client.start()
        while not any((tmp_path / "uploads").glob(MOMENTS[moment])):
            assert client.is_alive()
        server.kill()
        client.join()
    with serving(tmp_path) as server:
        accepted = [s["penstock-id"] for s in server.get("/submissions")["submissions"]]
        assert accepted == ["mine"] or (moment == "staged" and accepted == [])
        for job in accepted:
            assert server.exit_code(job) == 0
            assert attempts(tmp_path, job) == 1
    written = counted(tmp_path)
    assert len(written) == len(set(written)) == NUMBERS * len(accepted)
    assert list((tmp_path / "uploads" / "jobs").glob(".new-*")) == []
