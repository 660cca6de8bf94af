"""A real Prometheus scrapes `penstock serve`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers.free_port import free_port
from penstock.testing.servers.prometheus_server import PrometheusServer
from tests.conftest import made_or_skipped
from tests.unit.cli.job_fixtures import end, endless_job
from tests.unit.support import eventually

pytestmark = pytest.mark.prometheus

TOKEN = "of-a-reader-and-of-nobody-else"
IN = "flink_taskmanager_job_task_operator_numRecordsIn"


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    """Scrape a server over the directory `checkpoints`, which needs a token."""
    tokens, checkpoints, port = tmp_path / "tokens", tmp_path / "checkpoints", free_port()
    tokens.write_text(f"reader {TOKEN}\n")
    tokens.chmod(0o600)
    checkpoints.mkdir()
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--dir", str(checkpoints)]
    command += ["--port", str(port), "--tokens", str(tokens)]
    server = made_or_skipped(lambda: PrometheusServer(f"localhost:{port}", TOKEN))
    with subprocess.Popen(command) as serving:
        try:
            with server:
                yield server
        finally:
            serving.terminate()


def test_jobs_are_scraped_while_they_run(prometheus: PrometheusServer, tmp_path: Path) -> None:
    eventually(lambda: [v for _, v in prometheus.query("up")] == [1.0])
    client = endless_job(tmp_path / "checkpoints")
    counted = f'sum by (job_name, operator_name) ({IN}{{operator_name="Map"}})'
    try:
        eventually(lambda: any(value > 0 for _, value in prometheus.query(counted)))
        ((labels, first),) = prometheus.query(counted)
        assert labels == {"job_name": "endless", "operator_name": "Map"}
        eventually(lambda: prometheus.query(counted)[0][1] > first)
        times = 'flink_taskmanager_job_task_{}TimeMsPerSecond{{task_name=~".*Map"}}'
        whole = " + ".join(times.format(kind) for kind in ("busy", "idle", "backPressured"))
        assert [value for _, value in prometheus.query(whole)] == pytest.approx([1000, 1000])
    finally:
        end(client)
    eventually(lambda: prometheus.query(counted) == [])
    assert prometheus.last_error() == ""
    assert [value for _, value in prometheus.query("flink_jobmanager_numRunningJobs")] == [0]
