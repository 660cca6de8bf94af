"""The server as a process: event streams, limits, TLS and speed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History
from penstock.checkpoint.storage.job_facts import JobFacts, PlannedStep
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointCompletedEntry,
    CommitsDone,
    CommitsStarted,
)
from penstock.serve.events import MOST_STREAMS
from tests.unit.cli.job_fixtures import end, endless_job, job_directory, penstock
from tests.unit.support import eventually

JOBS, CHECKPOINTS = 100, 100


@contextmanager
def serving(
    directory: Path, *options: str, scheme: str = "http", files: int | None = None
) -> Iterator[tuple[str, Any]]:
    """Run a server, with so many open files at most; yield its address and its process."""
    limit = [] if files is None else ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash"]
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--dir", str(directory)]
    command += ["--port", "0", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*limit, *command], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            # It listens already, and answers as soon as it has started.
            address = process.stdout.readline().partition(" shows ")[0]
            assert address.startswith(f"{scheme}://localhost:")
            yield address, process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def endless_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    directory = tmp_path_factory.mktemp("checkpoints")
    job_directory(directory, "count")
    with serving(directory) as server:
        yield server


def fetch(url: str, context: ssl.SSLContext | None = None) -> Any:
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return json.load(answer)


async def read_head(port: int, path: str) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request; return the status of its answer, and the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), reader, writer


def test_a_thousand_event_streams_are_answered_and_harm_nothing(tmp_path: Path) -> None:
    job_directory(tmp_path, "count")
    with serving(tmp_path) as (address, process):
        port = int(address.rpartition(":")[2])

        async def open_many() -> list[int]:
            statuses, kept = [], []
            for _ in range(10):
                heads = (read_head(port, "/events?job=count") for _ in range(100))
                for status, reader, writer in await asyncio.gather(*heads):
                    statuses.append(status)
                    kept.append(writer)
                    del reader
            assert len(fetch_jobs(address)) == 1
            for writer in kept:
                writer.close()
            return statuses

        statuses = asyncio.run(open_many())
        assert statuses.count(200) == MOST_STREAMS
        assert statuses.count(503) == 1000 - MOST_STREAMS

        async def open_one() -> int:
            status, _, writer = await read_head(port, "/events")
            writer.close()
            return status

        # The server notices that they are closed, and has room again.
        eventually(lambda: asyncio.run(open_one()) == 200)
        assert process.poll() is None


def fetch_jobs(address: str) -> Any:
    return fetch(f"{address}/jobs")["jobs"]


async def events(port: int, path: str, wanted: int) -> list[tuple[str, Any]]:
    """Return the first events of a stream."""
    _, reader, writer = await read_head(port, path)
    found: list[tuple[str, Any]] = []
    name = ""
    while len(found) < wanted:
        line = (await asyncio.wait_for(reader.readline(), 30)).decode()
        if line.startswith("event: "):
            name = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            found.append((name, json.loads(line.removeprefix("data: "))))
    writer.close()
    return found


def test_a_stream_has_the_list_of_jobs_and_one_job_and_what_changes(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    (directory,) = tmp_path.iterdir()
    with serving(tmp_path) as (address, _):
        port = int(address.rpartition(":")[2])
        path = f"/v1/events?job={directory.name}"
        first = asyncio.run(events(port, path, 2))
        assert [name for name, _ in first] == ["jobs", f"job:{directory.name}"]
        assert first[0][1]["jobs"][0]["state"] == "RUNNING"
        assert len(first[1][1]["vertices"]) == 2
        end(client)
        eventually(
            lambda: asyncio.run(events(port, path, 1))[0][1]["jobs"][0]["state"] == "CANCELED"
        )


def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    client = endless_job(tmp_path)
    try:
        with serving(tmp_path) as (address, process):
            (before,) = fetch(f"{address}/jobs/overview")["jobs"]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert not client.get_job_execution_result().done()
        with serving(tmp_path) as (address, _):
            (after,) = fetch(f"{address}/jobs/overview")["jobs"]
        assert (after["jid"], after["state"]) == (before["jid"], "RUNNING")
    finally:
        end(client)


def test_sigterm_ends_the_server_also_with_open_streams(tmp_path: Path) -> None:
    with serving(tmp_path) as (address, process):
        port = int(address.rpartition(":")[2])

        async def stream() -> None:
            _, reader, _ = await read_head(port, "/events")
            await reader.readline()
            process.terminate()
            await asyncio.wait_for(reader.read(), 20)

        asyncio.run(stream())
        assert process.wait(20) in (0, -signal.SIGTERM, 143)
        assert process.stderr.read() == ""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_the_server_speaks_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    jobs = tmp_path / "jobs"
    job_directory(jobs, "count")
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(jobs, *options, scheme="https") as (address, _):
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert len(fetch(f"{address}/jobs", trusted)["jobs"]) == 1


def test_a_hundred_jobs_with_ten_thousand_checkpoints_are_shown_at_once(tmp_path: Path) -> None:
    make_jobs(tmp_path)
    with serving(tmp_path) as (address, _):
        durations = []
        for _ in range(5):
            # Longer than a look at the directory is used for.
            time.sleep(1.1)
            began = time.monotonic()
            assert len(fetch(f"{address}/jobs/overview")["jobs"]) == JOBS
            durations.append(time.monotonic() - began)
        began = time.monotonic()
        assert len(fetch(f"{address}/jobs/job-7/checkpoints")["history"]) == CHECKPOINTS
        durations.append(time.monotonic() - began)
    print("seconds", durations)
    assert sorted(durations)[len(durations) // 2] < 0.3 * slowness()


def slowness() -> float:
    """Return how much slower than alone a process is here: other tests use the machine, too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) * 1.5


def make_jobs(directory: Path) -> None:
    """Write what a hundred jobs with a hundred retained checkpoints each leave."""
    plan = [PlannedStep("source", "Source", 2, "source", 0), PlannedStep("s", "Sink", 2, "sink", 0)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        first = job_directory(directory, "job-0")
        history = History(first.storage, checkpoints_kept=CHECKPOINTS)
        journal = Journal(first.storage, "job-0")
        journal.state()
        journal.append(AttemptStarted("a2", 1_000.0, "somewhere", 1))
        first.write_facts(JobFacts("job-0", 1.0, plan=plan, stages=["Source -> Sink"]))
        for id_ in range(1, CHECKPOINTS + 1):
            path = str(first.checkpoint_dir(id_))
            stats = CheckpointStats(
                id_, "periodic", CheckpointStatus.COMPLETED, "a2", 1_000.0 + id_, 0.1, path=path
            )
            history.write(stats)
            entry = CheckpointCompletedEntry(id_, "a2", f"chk-{id_}", False, 1, 1_000.0 + id_)
            for one in (entry, CommitsStarted(id_, "a2", 1.0), CommitsDone(id_, "a2", 1.0)):
                journal.append(one)
            first.storage.replace(f"chk-{id_}/_metadata", b"")
    for number in range(1, JOBS):
        shutil.copytree(str(first.path), directory / f"job-{number}", copy_function=os.link)


def test_connections_that_send_no_request_keep_nobody_out(tmp_path: Path) -> None:
    job_directory(tmp_path, "count")
    with contextlib.ExitStack() as stack, serving(tmp_path, files=256) as (address, process):
        place = "127.0.0.1", int(address.rpartition(":")[2])
        idle: list[socket.socket] = []
        for _ in range(4):
            for _ in range(100):
                connection = socket.create_connection(place, timeout=20)
                idle.append(stack.enter_context(connection))
                connection.sendall(b"GET /overview HTTP/1.1\r\n")
            assert len(fetch_jobs(address)) == 1
        assert ended(idle[0]), "the oldest one has made room"
        assert process.poll() is None
        process.terminate()
        assert "Too many open files" not in process.communicate(timeout=30)[1]


def test_callers_beyond_the_limit_of_connections_are_told_so(tmp_path: Path) -> None:
    with serving(tmp_path, files=260) as (address, _):
        port = int(address.rpartition(":")[2])

        async def statuses() -> list[int]:
            heads = [await read_head(port, "/events") for _ in range(80)]
            _, reader, writer = await read_head(port, "/overview")
            body = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            assert b"Too many connections are open" in body
            for _, _, opened in heads:
                opened.close()
            return [status for status, _, _ in heads]

        assert set(asyncio.run(statuses())) == {200}
        eventually(lambda: "jobs" in fetch(f"{address}/jobs"))


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_port_that_is_in_use_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as (address, _):
        result = penstock("serve", "--dir", tmp_path, "--port", address.rpartition(":")[2])
    assert result.exit_code == 2
    assert "choose another with --port" in result.stderr


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET /jobs HTTP/9.9\r\n\r\n", 403),
        (b"GET /jobs HTTP/1.1\r\n\r\n", 400),
        (b"GET /jobs HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 400),
        (b"GET /jobs/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET //evil.example/%2e%2e HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /jobs/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"POST /jobs/a/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n", 413),
    ],
)
def test_a_malformed_request_is_answered_and_harms_nothing(
    endless_server: tuple[str, Any], request_: bytes, status: int
) -> None:
    address, process = endless_server
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as connection:
        connection.settimeout(20)
        connection.sendall(request_)
        answer = connection.recv(65536)
    assert answer.split()[1] == str(status).encode(), answer[:200]
    assert b"root:" not in answer
    assert process.poll() is None
    assert len(fetch(f"{address}/jobs")["jobs"]) == 1
