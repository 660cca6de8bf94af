"""A standalone Spark cluster on this machine, whose two hosts share no directory.

Each host has an address, and a mount namespace in which /tmp, /var/tmp and /dev/shm are its own and
all else is read-only. It is a process namespace, too: killing its first process with -9 ends all of
it, as if it had lost its power. For `s3_demo.py`; needs Linux, and root or user namespaces.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

DRIVER_HOST = "127.0.0.1"
HOSTS = ("127.0.0.2", "127.0.0.3")
OWN = ("/dev/shm", "/var/tmp", "/tmp")  # /tmp last: what the others are bound to may be below it
CORES = 2
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PROGRAMS = {Path(sys.prefix), Path(__file__).resolve().parents[1]}
DEPLOY = "org.apache.spark.deploy"


class TwoHosts:
    """The running cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        log = directory / "master.log"
        self._master = start(log, master_command(self._port))
        wait_for(self._master, log, "I have been elected leader")
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        return f"spark://{DRIVER_HOST}:{self._port}"

    def start_host(self, host: str) -> None:
        own = self._directory / host
        for path in OWN:
            (own / path[1:].replace("/", "-")).mkdir(parents=True, exist_ok=True)
        log = self._directory / f"{host}-{time.monotonic_ns()}.log"
        options = ["--host", host, "--cores", str(CORES), "--memory", "1g", "--webui-port", "0"]
        options += ["--work-dir", "/tmp/work", self.master]
        command = on_a_host(own, [str(SPARK_CLASS), f"{DEPLOY}.worker.Worker", *options])
        worker = self._workers[host] = start(log, command)
        wait_for(worker, log, "Successfully registered with master")

    def kill_host(self, host: str) -> int:
        """Kill everything on a host with -9; return the process that was killed."""
        worker = self._workers.pop(host)
        worker.kill()
        worker.wait()
        return worker.pid

    def close(self) -> None:
        for host in list(self._workers):
            self.kill_host(host)
        self._master.kill()
        self._master.wait()


@contextmanager
def two_hosts(directory: Path) -> Iterator[TwoHosts]:
    directory.mkdir(parents=True)
    hosts = TwoHosts(directory)
    try:
        for host in HOSTS:
            hosts.start_host(host)
        yield hosts
    finally:
        hosts.close()


def on_a_host(own: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one in namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    namespaces = ["unshare", *user, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    binds = [f"mount --rbind '{own}/{path[1:].replace('/', '-')}' {path}" for path in OWN]
    for program in (p for p in PROGRAMS if p.is_relative_to("/tmp")):
        # Programs are on every host, also if they are in a directory that hosts do not share.
        place = f"{own}{program}"
        binds[:0] = [f"mkdir -p '{place}'", f"mount --bind '{program}' '{place}'"]
    script = " && ".join([*binds, "mount -o remount,bind,ro /", 'cd /tmp && exec "$@"'])
    return [*namespaces, "sh", "-c", script, "sh", *command]


def master_command(port: int) -> list[str]:
    options = ["--host", DRIVER_HOST, "--port", str(port), "--webui-port", "0"]
    return [str(SPARK_CLASS), f"{DEPLOY}.master.Master", *options]


def start(log: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    # What this process has for its own temporary files is not on the hosts.
    environment = {k: v for k, v in os.environ.items() if k != "TMPDIR"}
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def wait_for(
    process: subprocess.Popen[bytes], log: Path, text: str, seconds: float = 120.0
) -> None:
    end = time.monotonic() + seconds
    while text not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            message = f"{process.args!r} does not start; namespaces need Linux, and root or "
            message += f"user namespaces:\n{said[-3000:]}"
            raise RuntimeError(message)
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((DRIVER_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
