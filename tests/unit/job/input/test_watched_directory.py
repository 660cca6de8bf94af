"""A job that watches a directory: its checkpoints stay small, and no file is lost or repeated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.job_dir import METADATA
from penstock.checkpoint.storage.metadata import SourceState
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common import Types, WatermarkStrategy
from penstock.common.time import Duration
from penstock.connectors.files.enumerator import EnumeratorState
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import ChangedFileError
from tests.local_paths import local
from tests.unit.job.counting import Program, checkpoint, die, launched, wait_for_records
from tests.unit.support import eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@dataclass
class Watching(Program):
    """Counts the numbers in the files of a directory."""

    interval: str | None = "10 h"

    @property
    def input(self) -> Path:
        return self.root / "in"

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        self.input.mkdir(exist_ok=True)
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), self.input)
        source = builder.monitor_continuously(Duration.of_millis(5)).build()
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "files").uid("numbers")
        self.count(lines.map(int, Types.LONG()).uid("parse"))
        return env

    def write(self, name: str, numbers: range) -> Path:
        hidden = self.input / f".{name}"
        hidden.write_text("".join(f"{n}\n" for n in numbers))
        return hidden.rename(self.input / name)

    def source_state(self, number: int) -> SourceState:
        path = self.dir.checkpoint_dir(number) / METADATA
        source = decode_metadata(local(path).read_bytes(), "").operator("numbers")
        assert source is not None
        assert source.source is not None
        return source.source

    def finished(self, number: int) -> int:
        """How many bytes a checkpoint holds of finished files."""
        state = self.source_state(number)
        assert state.positions == {}
        return len(msgspec.msgpack.decode(state.enumerator_state, type=EnumeratorState).finished)


def test_files_that_were_removed_are_in_no_later_checkpoint(tmp_path: Path) -> None:
    program = Watching(tmp_path)
    job = program.launch()
    paths = [program.write(f"a-long-name-{n}", range(n * 3, n * 3 + 3)) for n in range(40)]
    wait_for_records(job, 120)
    assert program.finished(checkpoint(job)) == 40 * 16
    for path in paths[1:]:
        path.unlink()
    eventually(lambda: program.finished(checkpoint(job)) == 16)
    die(job)
    # The name of a removed file is used again, and the first file is still there.
    program.write("a-long-name-1", range(120, 123))
    job = program.launch()
    wait_for_records(job, 3)
    checkpoint(job)
    eventually(lambda: len(program.lines()) >= 123)
    result = program.verdict(123)
    assert result.is_exactly_once, result


def test_a_name_is_used_again_in_the_same_attempt(tmp_path: Path) -> None:
    program = Watching(tmp_path)
    job = program.launch()
    path = program.write("a", range(30))
    wait_for_records(job, 30)
    checkpoint(job)
    path.unlink()
    eventually(lambda: program.finished(checkpoint(job)) == 0)
    program.write("a", range(30, 60))
    wait_for_records(job, 60)
    checkpoint(job)
    eventually(lambda: len(program.lines()) >= 60)
    result = program.verdict(60)
    assert result.is_exactly_once, result


def test_a_job_whose_file_was_replaced_while_it_was_down_says_so(tmp_path: Path) -> None:
    program = Watching(
        tmp_path,
        settings={
            "penstock__micro_batch__max_records": "2",
            "penstock__micro_batch__initial_records": "2",
            "restart_strategy__type": "none",
        },
    )
    program.input.mkdir()
    program.write("a", range(4000))
    job = program.launch()
    wait_for_records(job, 20)
    state = program.source_state(checkpoint(job))
    assert 0 < state.positions[str(program.input / "a")] < (program.input / "a").stat().st_size
    die(job)
    program.write("a", range(4000, 9000))
    with pytest.raises(ChangedFileError, match="a changed after the job began to read it"):
        program.run()
