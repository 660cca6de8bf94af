"""The daemon of Spark's workers is silent when Spark ends; here the test is Spark."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    # Not in tmp_path: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory() as directory:
        settings = {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": directory,
            "SPARK_REUSE_WORKER": "1",
        }
        with subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.daemon", "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **settings},
        ) as process:
            yield process
            process.kill()


def number(data: bytes) -> int:
    return int(struct.unpack(">i", data)[0])


def test_a_worker_whose_connection_is_closed_ends_without_a_traceback(
    daemon: subprocess.Popen[bytes],
) -> None:
    assert daemon.stdout is not None
    path = daemon.stdout.read(number(daemon.stdout.read(4)))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        worker = number(connection.recv(4))
        ended = os.pidfd_open(worker)
    select.select([ended], [], [], 30)
    os.close(ended)
    _, errors = daemon.communicate(timeout=30)
    assert errors.decode() == ""


def test_a_daemon_that_starts_when_spark_has_ended_prints_no_traceback(
    daemon: subprocess.Popen[bytes],
) -> None:
    assert daemon.stdout is not None
    assert daemon.stdin is not None
    assert daemon.stderr is not None
    daemon.stdout.close()
    daemon.stdin.close()
    assert daemon.stderr.read().decode() == ""
