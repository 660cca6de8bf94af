"""A job whose sink runs out of space, on a real file system."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.common import Encoder, Types
from penstock.datastream import DataStream
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.errors import MissingServerError
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, ManualClock, Pause
from tests.contracts.sink_harness import files_in
from tests.servers.small_disk import SmallDisk, small_disk
from tests.unit.job.counting import Program, checkpoint, launched, wait_for_records

RECORDS = 20
ROW = 3_000


@pytest.fixture
def disk() -> Iterable[SmallDisk]:
    try:
        with small_disk(8) as disk:
            yield disk
            for job in launched:
                job.kill()
            launched.clear()
    except MissingServerError as missing:
        pytest.skip(str(missing))


@dataclass
class Rows(Program):
    """Writes rows that are buffered; the second half of its input comes after a second."""

    def __post_init__(self) -> None:
        self.interval = "10 h"
        self.parallelism = 1
        self.clock = ManualClock()
        self.settings = {"restart_strategy__type": "none"}
        self.script = [Burst(range(RECORDS)), Pause(1), Burst(range(RECORDS, 2 * RECORDS))]

    def count(self, numbers: DataStream) -> None:
        rows = numbers.map(lambda n: f"{n}".ljust(ROW - 1, "."), Types.STRING()).uid("rows")
        rows.rebalance().sink_to(self.sink()).uid("files")

    def sink(self) -> FileSink:
        rows = FileSink.for_row_format(self.output, Encoder.simple_string_encoder())
        return rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()

    def begin(self) -> LaunchedJob:
        job = self.launch()
        wait_for_records(job, RECORDS)
        return job

    def end(self, job: LaunchedJob) -> None:
        assert self.clock is not None
        self.clock.advance(1)
        assert job.wait_for_end(20)


def test_a_full_disk_leaves_no_partial_files_and_loses_nothing(
    disk: SmallDisk, tmp_path: Path
) -> None:
    program = Rows(tmp_path, output=str(disk.path / "out"))
    job = program.begin()
    checkpoint(job)
    before = {path: path.stat().st_size for path in files_in(disk.path / "out")}
    assert before
    disk.fill()
    program.end(job)
    with pytest.raises(Exception, match=f"No space left on device: '{disk.path}/out"):
        job.raise_failure()
    assert {path: path.stat().st_size for path in files_in(disk.path / "out")} == before
    disk.free()
    again = replace(program)
    job = again.launch()
    again.end(job)
    job.raise_failure()
    numbers = [int(line.rstrip(".")) for line in again.lines()]
    assert sorted(numbers) == list(range(2 * RECORDS))
