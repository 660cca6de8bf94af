"""Sources whose ranges are read by a reader of Spark's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import Configuration, TypeInformation, Types, WatermarkStrategy
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    SourceEnumerator,
    SparkRead,
    SparkSource,
    SplitRange,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.errors import RuntimeSetupError

pytestmark = pytest.mark.spark

FILES = 5
LINES = 40


class TextFiles(SparkSource):
    """Numbered files, each of them one subtask's, read as a whole with Spark's text reader."""

    def __init__(self, directory: Path, reader: str = "text") -> None:
        self.directory = str(directory)
        self.reader = reader

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return Types.STRING()

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return OneAfterTheOther(context.parallelism)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        yield Path(self.directory, split_range.split).read_text().splitlines()

    def spark_read(self, ranges: Sequence[SplitRange]) -> SparkRead:
        (only,) = ranges
        path = str(Path(self.directory, only.split))
        return SparkRead({"path": path}, ("value",))

    def spark_format(self) -> str:
        return self.reader

    def read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Any]]:
        for batch in batches:
            yield batch.column(0).to_pylist()

    def missing_reader(self) -> str:
        return "these files are not installed: install them"


class OneAfterTheOther(SourceEnumerator):
    """Gives the last subtask a file, then two of them one each, then the first one."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._next = 0

    def start(self, positions: Mapping[str, int]) -> None:
        self._next = positions.get("files", 0)

    def plan(self, max_records: int) -> ReadPlan:
        if self.finished():
            return []
        plan: ReadPlan = [[] for _ in range(self._parallelism)]
        for subtask in {0: [2], 1: [0, 1], 3: [0, 2]}[self._next]:
            plan[subtask].append(SplitRange(str(self._next), 0, 1))
            self._next += 1
        return plan

    def positions(self) -> dict[str, int]:
        return {"files": self._next}

    def finished(self) -> bool:
        return self._next >= FILES


class WhoRead(MapFunction[str, str]):
    """Puts the subtask's index before a line."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: str) -> str:
        return f"{self.index} {value}"


def files_in(directory: Path) -> None:
    for number in range(FILES):
        lines = [f"{number} {line:03d}" for line in range(LINES)]
        (directory / str(number)).write_text("\n".join(lines) + "\n")


def environment(exchange: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("penstock.exchange", exchange)
    configuration.set_string("parallelism.default", "3")
    return StreamExecutionEnvironment.get_execution_environment(configuration)


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_each_subtask_gets_the_rows_of_its_own_ranges_in_order(
    tmp_path: Path, exchange: str
) -> None:
    files_in(tmp_path)
    env = environment(exchange)
    source = env.from_source(TextFiles(tmp_path), WatermarkStrategy.no_watermarks(), "files")
    lines = source.map(WhoRead(), Types.STRING()).key_by(lambda line: line.split()[1])
    with lines.map(str, Types.STRING()).execute_and_collect() as found:
        by_file: dict[str, list[str]] = {}
        for line in found:
            by_file.setdefault(line.split()[1], []).append(line)
    readers = {"0": 2, "1": 0, "2": 1, "3": 0, "4": 2}
    assert by_file == {
        file: [f"{who} {file} {line:03d}" for line in range(LINES)] for file, who in readers.items()
    }


def test_a_reader_that_spark_does_not_have_is_named(tmp_path: Path) -> None:
    files_in(tmp_path)
    env = environment("channel")
    env.enable_checkpointing(1000)  # with which jobs that fail start again
    source = TextFiles(tmp_path, reader="carrier-pigeon")
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files").print()
    with pytest.raises(RuntimeSetupError, match="install them"):
        env.execute("pigeons")
