"""Flink's own command line lists, snapshots, stops and cancels jobs through `penstock serve`."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.serve.jobs.hex_ids import hex_id
from penstock.testing.servers.free_port import free_port
from tests.conftest import made_or_skipped
from tests.servers.flink_cli import FlinkCli
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.support import eventually

pytestmark = pytest.mark.flink


@pytest.fixture(scope="module")
def flink() -> FlinkCli:
    return made_or_skipped(FlinkCli.in_cache().required)


@dataclass(frozen=True)
class Cluster:
    """A checkpoint directory with a running job, and a server over it."""

    checkpoints: Path
    address: str
    scratch: Path
    flink: FlinkCli

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.flink.run(self.scratch, command, "-m", self.address, *arguments)


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/overview", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def cluster(flink: FlinkCli, tmp_path: Path) -> Iterator[Cluster]:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--dir", str(checkpoints)]
    with subprocess.Popen([*command, "--port", str(port)]) as server:
        try:
            eventually(lambda: answers(f"localhost:{port}"))
            yield Cluster(checkpoints, f"localhost:{port}", tmp_path, flink)
        finally:
            server.terminate()


def job_line(output: str, name: str) -> tuple[str, str]:
    """Return the id and the status of a job in a list that Flink prints."""
    found = re.search(rf": ([0-9a-f]{{32}}) : {re.escape(name)} \((\w+)\)", output)
    assert found is not None, output
    return found[1], found[2]


def test_flinks_command_line_operates_jobs(cluster: Cluster) -> None:
    first, second = (endless_job(cluster.checkpoints, name) for name in ("first", "second"))
    try:
        listed = cluster.run("list")
        assert listed.returncode == 0, listed.stderr
        ids = {}
        for name in ("first", "second"):
            ids[name], status = job_line(listed.stdout, name)
            assert status == "RUNNING"
        directories = {hex_id(path.name) for path in cluster.checkpoints.iterdir()}
        assert set(ids.values()) == directories

        savepoints = cluster.scratch / "savepoints"
        savepoint = cluster.run("savepoint", ids["first"], str(savepoints))
        assert savepoint.returncode == 0, savepoint.stderr
        path = re.search(r"Path: (\S+)", savepoint.stdout)
        assert path is not None, savepoint.stdout
        assert (Path(path[1]) / "_metadata").exists()

        stopped = cluster.run("stop", "-p", str(savepoints), ids["first"])
        assert stopped.returncode == 0, stopped.stderr
        path = re.search(r"Savepoint completed. Path: (\S+)", stopped.stdout)
        assert path is not None, stopped.stdout
        assert (Path(path[1]) / "_metadata").exists()
        eventually(lambda: first.get_job_execution_result().done())

        canceled = cluster.run("cancel", ids["second"])
        assert canceled.returncode == 0, canceled.stderr
        eventually(lambda: second.get_job_execution_result().done())

        ended = cluster.run("list", "-a").stdout
        assert job_line(ended, "first") == (ids["first"], "FINISHED")
        assert job_line(ended, "second") == (ids["second"], "CANCELED")
    finally:
        for job in (first, second):
            if not job.get_job_execution_result().done():
                end(job)


def test_flinks_command_line_shows_why_a_savepoint_failed(cluster: Cluster) -> None:
    job = endless_job(cluster.checkpoints, "first")
    try:
        (cluster.scratch / "file").write_text("")
        (directory,) = cluster.checkpoints.iterdir()
        target = str(cluster.scratch / "file" / "below")
        failed = cluster.run("savepoint", hex_id(directory.name), target)
        assert failed.returncode != 0
        # The text of the driver's error, out of a Java exception that Flink deserialized.
        assert target in failed.stderr
        assert "Not a directory" in failed.stderr
    finally:
        end(job)
