"""A standalone Spark cluster of one master and one worker, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(_SPARK_CLASS), *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@contextmanager
def standalone_cluster(directory: Path, cores: int = 2) -> Iterator[str]:
    """Start a cluster and give its address; nothing of it is left behind."""
    directory.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", str(cores)]
    worker += ["--memory", "2g", "--work-dir", str(directory / "work"), "--webui-port", "0"]
    logs = directory / "master.log", directory / "worker.log"
    processes = [_start(logs[0], *master, "--webui-port", "0")]
    try:
        _wait_for(logs[0], "I have been elected leader")
        processes.append(_start(logs[1], *worker, address))
        _wait_for(logs[1], "Successfully registered with master")
        yield address
    finally:
        for pid in executors(address):
            os.kill(pid, signal.SIGKILL)
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(log: Path, text: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)


def executors(address: str) -> list[int]:
    """The processes of the cluster's executors: they name the worker that belongs to the port."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            parent = (process / "status").read_text().partition("PPid:")[2].split()[0]
            around = Path(f"/proc/{parent}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and address in around:
            found.append(int(process.name))
    return sorted(found)
