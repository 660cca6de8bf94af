"""Two jobs with the same name and output path, but different checkpoint directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.common import Encoder, Types
from penstock.datastream import DataStream
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, ManualClock, Pause, compare, read_lines
from tests.unit.job.counting import Program, checkpoint, die, launched, wait_for_records

RECORDS = 20


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@dataclass
class Tagged(Program):
    """Writes its own name into every row; the second half of its input comes after a second."""

    ends: bool = True

    def __post_init__(self) -> None:
        self.interval = "10 h"
        self.output = str(self.root.parent / "out")
        self.clock = ManualClock()
        first, second = range(RECORDS), range(RECORDS, 2 * RECORDS)
        self.script = [Burst(first), Pause(1), Burst(second), *([] if self.ends else [Idle()])]

    def count(self, numbers: DataStream) -> None:
        tag = self.root.name
        rows = numbers.map(lambda number: f"{tag} {number}", Types.STRING()).uid("rows")
        rows.rebalance().sink_to(self.sink()).uid("files")

    def sink(self) -> FileSink:
        rows = FileSink.for_row_format(self.output, Encoder.simple_string_encoder())
        return rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()

    def finish(self, job: LaunchedJob) -> None:
        """Let the second half of the input come, and wait for the end."""
        assert self.clock is not None
        self.clock.advance(1)
        assert job.wait_for_end(20)
        job.raise_failure()

    def rows(self) -> list[str]:
        return [f"{self.root.name} {number}" for number in range(2 * RECORDS)]


def programs(tmp_path: Path) -> tuple[Tagged, Tagged]:
    return Tagged(tmp_path / "one"), Tagged(tmp_path / "two")


def assert_exact(*programs: Tagged) -> None:
    expected = [row for program in programs for row in program.rows()]
    found = compare(expected, read_lines(Path(programs[0].output)))
    assert found.is_exactly_once, found
    assert not list(Path(programs[0].output).glob(".*"))


def test_a_start_leaves_the_staged_output_of_a_running_job_alone(tmp_path: Path) -> None:
    one, two = programs(tmp_path)
    running = one.launch()
    wait_for_records(running, RECORDS)
    other = two.launch()
    wait_for_records(other, RECORDS)
    two.finish(other)
    checkpoint(running)
    one.finish(running)
    assert_exact(one, two)


def test_a_start_leaves_the_output_in_the_checkpoint_of_a_dead_job_alone(tmp_path: Path) -> None:
    one, two = programs(tmp_path)
    job = one.launch()
    wait_for_records(job, RECORDS)
    checkpoint(job)
    die(job)
    other = two.launch()
    wait_for_records(other, RECORDS)
    checkpoint(other)
    first, second = replace(one), replace(two)
    again = first.launch()
    die(other)
    first.finish(again)
    second.finish(second.launch())
    assert_exact(one, two)
