"""State is looked up while its job is killed with -9 and started again, and while the server is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.queryable import QueryableStateClient, QueryableStateError, StateServerError
from penstock.testing.servers.free_port import free_port
from tests.unit.serve.queryable.shop_job import CUSTOMERS
from tests.unit.support import eventually

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from pathlib import Path
from tests.unit.serve.queryable.shop_job import shop
shop(Path(sys.argv[1]), state__backend__type=sys.argv[2]).execute("shop")
"""
ROOT = Path(__file__).parents[2]


def start_job(directory: Path, backend: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, str(directory), backend]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


def start_server(directory: Path, port: int, scratch: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--dir", str(directory)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.Popen([*command, "--port", str(port)], env=environment)


class Reader(threading.Thread):
    """Reads all the time, and keeps every answer that is wrong."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._client = QueryableStateClient(url)
        self.answers = 0
        self.wrong: list[Any] = []
        self.last = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                known = self._client.known("shop", 3)
            except QueryableStateError as error:
                if not isinstance(error, StateServerError):
                    self.wrong.append(error)
                time.sleep(0.01)
                continue
            found = {state.state: state.keys[0].entries for state in known.states}
            count = found["count"][0].value
            newest = max(entry.value for entry in found["by parity"])
            is_torn = newest != 3 + CUSTOMERS * (count - 1)
            if is_torn or known.checkpoint < self.last:
                self.wrong.append(known)
            self.last = known.checkpoint
            self.answers += 1


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_committed_state_is_whole_and_never_goes_back(tmp_path: Path, backend: str) -> None:
    checkpoints, scratch, port = tmp_path / "checkpoints", tmp_path / "scratch", free_port()
    checkpoints.mkdir()
    scratch.mkdir()
    server = start_server(checkpoints, port, scratch)
    job = start_job(checkpoints, backend)
    url = f"http://localhost:{port}"
    client = QueryableStateClient(url)
    try:
        eventually(lambda: _count(client) > 0, 60)
        reader = Reader(url)
        reader.start()
        for _ in range(3):
            before = _count(client)
            eventually(lambda seen=before: _count(client) > seen, 60)  # type: ignore[misc]
            job.kill()
            job.wait()
            answers = reader.answers
            # Nobody runs the job: its last checkpoint is there, the latest micro-batch is not.
            eventually(lambda seen=answers: reader.answers > seen + 5, 60)  # type: ignore[misc]
            with pytest.raises(StateServerError, match="No driver is running"):
                client.value("shop", "orders", "count", 3, level="latest")
            job = start_job(checkpoints, backend)
        server.kill()
        server.wait()
        left = [path for path in scratch.iterdir() if "serve-state" in path.name]
        assert left
        server = start_server(checkpoints, port, scratch)
        last = reader.last
        eventually(lambda: reader.last > last, 60)
        assert not left[0].exists(), "what the killed server left is removed"
        reader.stop.set()
        reader.join()
        assert reader.wrong == []
    finally:
        for process in (job, server):
            process.kill()
            process.wait()


def _count(client: QueryableStateClient) -> int:
    try:
        return int(client.value("shop", "orders", "count", 3) or 0)
    except QueryableStateError:
        return 0
