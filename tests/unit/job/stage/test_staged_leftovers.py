"""What tasks staged for nothing is removed at once, and not only at the end of the attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.connectors.indexed_sources import NumberSequenceSource
from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.job.submitter import MicroBatchLostError
from penstock.task.messages import Acknowledgement, Instruction
from tests.unit.support import WatchedSubmitter, environment

RECORDS = 30


class Count(KeyedProcessFunction[Any, int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield f"{value} {self.count.value()}"


def program(
    tmp_path: Path, submitter: WatchedSubmitter, backend: str = "hashmap"
) -> StreamExecutionEnvironment:
    env = environment(
        2,
        penstock__work_dir=str(tmp_path / "work"),
        execution__checkpointing__dir=str(tmp_path / "checkpoints"),
        execution__checkpointing__interval="1 h",
        state__backend__type=backend,
        restart_strategy__type="none",
        penstock__micro_batch__max_records="10",
        penstock__micro_batch__initial_records="10",
    )
    return submitter.watch(env)


def counted(env: StreamExecutionEnvironment) -> DataStream:
    source = NumberSequenceSource(0, RECORDS - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    return numbers.key_by(lambda n: n % 4, Types.LONG()).process(Count(), Types.STRING())


def staged_in(directory: Path, instruction: Instruction, try_number: int) -> dict[str, list[Path]]:
    """The files of a try by kind: a stage with state has deltas and pieces, the source segments."""
    name = f"*{instruction.attempt}-b{instruction.batch}-t{try_number}-*"
    kinds = {".arrow"} if instruction.stage == 0 else {".delta", ".piece"}
    found: dict[str, list[Path]] = {}
    for path in directory.rglob(name):
        if path.suffix in kinds:
            found.setdefault(path.suffix, []).append(path)
    return found


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_what_a_lost_try_staged_is_removed_before_the_next_one(
    tmp_path: Path, backend: str
) -> None:
    staged: set[str] = set()
    left: list[Path] = []

    class Lossy(WatchedSubmitter):
        def before(self, instruction: Instruction) -> None:
            if instruction.try_number:
                for paths in staged_in(tmp_path, instruction, 0).values():
                    left.extend(paths)

        def after(self, instruction: Instruction) -> None:
            if instruction.try_number == 0:
                staged.update(staged_in(tmp_path, instruction, 0))
                message = "the executor is gone"
                raise MicroBatchLostError(message)

    env = program(tmp_path, Lossy(), backend)
    rows = FileSink.for_row_format(tmp_path / "out", Encoder.simple_string_encoder())
    sink = rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    counted(env).sink_to(sink)
    env.execute()
    assert staged == {".arrow", ".delta", ".piece"}
    assert left == []
    parts = [path.read_text() for path in (tmp_path / "out").glob("part-*")]
    expected = sorted(f"{n} {n // 4 + 1}" for n in range(RECORDS))
    assert sorted("".join(parts).splitlines()) == expected


class Full(DiscardingSink):
    """Has no space when the task has already staged everything else."""

    def writer(self, context: Any) -> Any:
        writer = super().writer(context)

        def fail() -> bytes:
            assert list(context.work_dir.parents[2].rglob(f"*-{context.name}.delta"))
            raise OSError(28, "No space left on device")

        writer.stage = fail  # type: ignore[method-assign]
        return writer


def test_a_failed_task_leaves_neither_its_segment_nor_its_delta(tmp_path: Path) -> None:
    left: list[Path] = []

    class Looks(WatchedSubmitter):
        def run(self, instructions: list[Instruction]) -> list[list[Acknowledgement]]:
            try:
                return super().run(instructions)
            except OSError:
                for suffix in ("arrow", "delta"):
                    left.extend(tmp_path.rglob(f"*-b{instructions[0].batch}-t0-*.{suffix}"))
                raise

    env = program(tmp_path, Looks()).set_parallelism(1)
    rows = counted(env)
    rows.sink_to(Full())
    rows.rebalance().map(str).sink_to(DiscardingSink())
    with pytest.raises(Exception, match="No space left"):
        env.execute()
    own = [path for path in left if path.suffix == ".delta" or "channels/1" in str(path)]
    assert own == []
