"""A standalone Spark cluster: a master and workers, each a process of its own on its own address.

Linux answers on all of 127.0.0.0/8, so that every worker can be a host to Spark. They share a
disk; what a host has to itself is a directory here, and its environment says which.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from penstock.state.local_dir import LOCAL_DIR_VARIABLE
from tests.crash.separate_hosts import SeparateHosts

ROOT = Path(__file__).parents[2]
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"
_NO_DIRECTORY_OF_THE_MACHINE = {"TMPDIR": "/tmp", "HOME": "/tmp"}
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live shortly: half the time to start."""


class Cluster:
    """A running cluster; its workers go by their addresses."""

    def __init__(self, directory: Path, cores: int, separate: SeparateHosts | None = None) -> None:
        self.directory = directory
        self._separate = separate
        self.driver_host = "127.0.0.1" if separate is None else separate.gateway
        self._cores = cores
        self._port = _free_port()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._master = self._start_master()

    @property
    def address(self) -> str:
        """What `spark.master` is set to."""
        return f"spark://{self.driver_host}:{self._port}"

    def local_dir(self, host: str) -> Path:
        """Where a worker's host keeps state."""
        return self._on(host) / "state"

    def start_workers(self, *hosts: str) -> None:
        """Start workers, also such that were killed; returns when the master knows them."""
        for log in [self._start_worker(host) for host in hosts]:
            _wait_for(log, "Successfully registered with master")

    def kill_worker(self, host: str) -> None:
        """Kill a worker and all it started, as if the host had lost its power."""
        worker = self._workers.pop(host)
        for pid in (worker.pid, *_descendants(worker.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait()

    def executors(self, host: str | None = None) -> list[int]:
        """The processes of executors, of one worker or of all."""
        workers = [w for h, w in self._workers.items() if host in (None, h)]
        return sorted(
            pid
            for worker in workers
            for pid in _descendants(worker.pid)
            if b"CoarseGrainedExecutorBackend" in _command(pid)
        )

    def registered(self, host: str) -> int:
        """How many executors of a host have come to their drivers so far, dead ones too."""
        logs = (self._on(host) / "work").glob("*/*/stderr")
        texts = (log.read_text(errors="replace") for log in logs)
        return sum("Successfully registered with driver" in text for text in texts)

    def close(self) -> None:
        """Kill all of it."""
        for host in list(self._workers):
            self.kill_worker(host)
        self._master.kill()
        self._master.wait()

    def _on(self, host: str) -> Path:
        """Return the directory of a host, as this machine sees it."""
        return self.directory / host if self._separate is None else self._separate.tmp_of(host)

    def _start_worker(self, host: str) -> Path:
        own = self._on(host) if self._separate is None else Path("/tmp")
        for name in ("scratch", "state"):
            (self._on(host) / name).mkdir(parents=True, exist_ok=True)
        log = self.directory / f"worker-{host}-{time.monotonic_ns()}.log"
        arguments = ["--host", host, "--cores", str(self._cores), "--memory", "2g"]
        arguments += ["--work-dir", str(own / "work"), "--webui-port", "0"]
        environment = {
            "SPARK_LOCAL_DIRS": str(own / "scratch"),
            LOCAL_DIR_VARIABLE: str(own / "state"),
            **({} if self._separate is None else _NO_DIRECTORY_OF_THE_MACHINE),
        }
        command = [str(_SPARK_CLASS), f"{_DEPLOY}.worker.Worker", *arguments, self.address]
        if self._separate is not None:
            command = self._separate.command(host, command)
        worker = _start(log, environment, command)
        self._workers[host] = worker
        return log

    def _start_master(self) -> subprocess.Popen[bytes]:
        log = self.directory / "master.log"
        arguments = ["--host", self.driver_host, "--port", str(self._port), "--webui-port", "0"]
        master = _start(log, {}, [str(_SPARK_CLASS), f"{_DEPLOY}.master.Master", *arguments])
        _wait_for(log, "I have been elected leader")
        return master


@contextmanager
def standalone_cluster(
    directory: Path,
    cores: int = 2,
    hosts: Sequence[str] = ("127.0.0.1",),
    separate: SeparateHosts | None = None,
) -> Iterator[Cluster]:
    """Start a cluster with a worker on each address, and end all of it afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(directory, cores, separate)
    try:
        cluster.start_workers(*hosts)
        yield cluster
    finally:
        cluster.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(log: Path, own: dict[str, str], command: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment, **own},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for(log: Path, text: str, seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


def _descendants(pid: int) -> list[int]:
    """All processes below one: a worker's executors, their Python daemons, and what those fork."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            facts = stat.read_text(errors="replace")
            parent = int(facts.rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
