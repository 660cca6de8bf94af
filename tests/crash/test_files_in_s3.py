"""A job that reads and writes files in S3, whose driver and store are killed: each line once."""

from __future__ import annotations

import io
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.crash_points import CRASH_AT, CrashPoint
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server, s3_binary
from tests.conftest import made_or_skipped
from tests.crash.driver import Driver
from tests.crash.files_in_s3_program import BUCKET, FILES, LINES, Variant
from tests.servers.file_sink_case import leftovers

pytestmark = [pytest.mark.crash, pytest.mark.s3]


class FilesDriver(Driver):
    program = "tests.crash.files_in_s3_program"


@contextmanager
def started(variant: Variant, crash_at: str = "") -> Iterator[Driver]:
    driver = FilesDriver(variant, {CRASH_AT: crash_at} if crash_at else {})
    try:
        yield driver
    finally:
        driver.kill()


@contextmanager
def store_with_input(directory: Path) -> Iterator[tuple[S3Server, Variant]]:
    """Run a server of its own, which the test may kill; the driver is forked before it is used."""
    made_or_skipped(s3_binary)
    with S3Server(directory / "s3") as server:
        bucket = server.create_bucket(BUCKET)
        for number in range(FILES):
            file = bucket / "in" / f"{number:02}.txt"
            file.parent.mkdir(exist_ok=True)
            numbers = range(number * LINES, (number + 1) * LINES)
            file.write_text("".join(f"{n} {'x' * (n % 70)}\n" for n in numbers))
        options = dict(server.options(retry_timeout="20 s", max_backoff="200 ms"))
        yield server, Variant(str(directory), options)


def results(variant: Variant) -> tuple[Counter[str], Counter[str]]:
    lines: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    written = storage_at(variant.place("lines"))
    for name in written.list(""):
        lines.update(written.read(name).decode().splitlines())
    tables = storage_at(variant.place("parquet"))
    for name in tables.list(""):
        rows.update(pq.read_table(io.BytesIO(tables.read(name)))["text"].to_pylist())
    return lines, rows


def check(variant: Variant) -> None:
    expected = Counter(f"{n} {'x' * (n % 70)}" for n in range(FILES * LINES))
    for found in results(variant):
        lost, duplicated = expected - found, found - expected
        assert (len(lost), len(duplicated)) == (0, 0), (lost, duplicated)
    assert leftovers(variant.place("lines")) == []
    assert leftovers(variant.place("parquet")) == []
    for log in Path(variant.directory).glob("start-*.log"):
        assert not re.search("secret", log.read_text())


def test_each_line_is_written_once_though_driver_and_store_are_killed(tmp_path: Path) -> None:
    rng = random.Random()
    with store_with_input(tmp_path) as (server, variant):
        for number in range(4):
            with started(variant) as driver:
                time.sleep(rng.uniform(0.6, 1.6))
                if number % 2:
                    server.kill()
                    time.sleep(rng.uniform(0.0, 0.3))
                    server.start()
                    time.sleep(rng.uniform(0.0, 0.5))
                driver.kill()
        with started(variant) as last:
            assert last.wait() == 0, last.words()
        check(variant)


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.STAGE_SNAPSHOT_DURABLE,
        CrashPoint.COORDINATOR_COMPLETED,
        CrashPoint.SINK_COMMITS_STARTED,
        CrashPoint.SINK_COMMITTED,
        CrashPoint.RECOVERY_COMMITTED,
        CrashPoint.JOB_FINISHING,
    ],
)
def test_each_line_is_written_once_wherever_its_commit_is_interrupted(
    tmp_path: Path, point: CrashPoint
) -> None:
    with store_with_input(tmp_path) as (_, variant):
        nth = 1 if point.startswith(("recovery", "job")) else 4
        if point is CrashPoint.RECOVERY_COMMITTED:
            with started(variant, f"{CrashPoint.SINK_COMMITTED}:3") as driver:
                assert driver.wait() == -9, driver.words()
        with started(variant, f"{point}:{nth}") as driver:
            assert driver.wait() == -9, driver.words()
        with started(variant) as last:
            assert last.wait() == 0, last.words()
        check(variant)
