"""The Spark jobs that write the keyed state of a savepoint.

Rows are encoded where they are, go in blocks through Spark's shuffle to the subtask that owns their
keys, are sorted there by their stored keys, and written as one Parquet file. What is carried over
as it is needs no shuffle: each file or part is one task.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.common.storage_url import Location
from penstock.errors import CorruptStateError
from penstock.savepoint.write import write_state
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import StatePart
from penstock.snapshots.writing.blocks import Block, BlockBuilder, sorted_entries
from penstock.snapshots.writing.carried_state import namespace_of_timer, regrouped, rows_of
from penstock.snapshots.writing.row_encoder import (
    Problem,
    RowEncoder,
    are_stored,
    value_type_in_transit,
)
from penstock.snapshots.writing.stored_tables import MOST_PROBLEMS, TableWriter
from penstock.snapshots.writing.targets import StateTarget
from penstock.spark.state.shapes import KeyedShape
from penstock.state.savepoint_file import SavepointFile

W = TypeVar("W")

_SUBTASK, _BAND, _DATA = "subtask", "band", "data"
_BLOCKS = f"{_SUBTASK} int, {_BAND} int, {_DATA} binary"
_RESULT = "result binary"


class StateWritten(msgspec.Struct, frozen=True):
    """What one task has written of a state, or found."""

    rows: int
    file: SavepointFile | None = None
    problems: list[Problem] = []
    first_time: int | None = None
    """Of timers: the earliest time."""


@dataclass(frozen=True, slots=True)
class WriteJobs:
    """The jobs of one savepoint; `savepoint` is None if rows are only checked."""

    spark: SparkSession
    savepoint: Location | None
    name: str
    """Unique to this run: a part of the names of its files."""

    def write_rows(
        self, target: StateTarget, frame: DataFrame, columns: dict[str, str]
    ) -> list[StateWritten]:
        """Write the rows of a state, or check them."""
        chosen = frame.select(*dict.fromkeys(columns.values()))
        encoded = chosen.mapInArrow(_Encode(target, columns), _BLOCKS)
        return self._sorted_and_written(encoded, target, stored=are_stored(target))

    def write_regrouped(
        self, target: StateTarget, state: KeyedState, parts: Sequence[StatePart]
    ) -> list[StateWritten]:
        """Write a state that exists with the key groups of another max parallelism."""
        regroup = _Regroup(target, state, tuple(parts))
        encoded = self._per_part(len(parts)).mapInArrow(regroup, _BLOCKS)
        return self._sorted_and_written(encoded, target, stored=True)

    def carry_over(
        self, work: Sequence[W], carry: Callable[[W, str], list[SavepointFile]]
    ) -> list[SavepointFile]:
        """Copy or convert files, each in a task of its own."""
        if not work:
            return []
        name = self.name

        def run(one: W) -> list[SavepointFile]:
            return carry(one, _task_name(name))

        context = self.spark.sparkContext
        found = context.parallelize(list(work), len(work)).map(run).collect()
        return [file for files in found for file in files]

    def state_frame(self, state: KeyedState, parts: Sequence[StatePart]) -> DataFrame:
        """Return a state that exists as rows: lists whole, maps entry by entry.

        The rows have the columns that reading has. Timers also have their namespace; keys without
        a declared type have their stored bytes.
        """
        read = _Read(state, tuple(parts))
        schema = from_arrow_schema(read.schema)
        return self._per_part(len(parts)).mapInArrow(read, schema)

    def _per_part(self, parts: int) -> DataFrame:
        return self.spark.range(0, parts, 1, max(1, parts))

    def _sorted_and_written(
        self, encoded: DataFrame, target: StateTarget, *, stored: bool
    ) -> list[StateWritten]:
        # One partition more than there are subtasks: that of rows with problems.
        shuffled = encoded.repartitionById(target.parallelism + 1, _SUBTASK)
        write = _Write(target, self.savepoint, self.name, stored)
        rows = shuffled.sortWithinPartitions(_BAND).mapInArrow(write, _RESULT).collect()
        return [msgspec.msgpack.decode(bytes(row[0]), type=StateWritten) for row in rows]


def unique_name() -> str:
    """Return a name for one run of the jobs."""
    return uuid.uuid4().hex[:12]


def _task_name(name: str) -> str:
    context = TaskContext.get()
    assert context is not None
    return f"{name}-{context.taskAttemptId()}"


@dataclass(frozen=True, slots=True)
class _Encode:
    """Turns rows into entries of a state; runs in tasks."""

    target: StateTarget
    columns: dict[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = self.target
        encoder = RowEncoder(target, self.columns)
        builder = BlockBuilder(
            value_type_in_transit(target), target.operator.max_parallelism, target.parallelism
        )
        left, untold = MOST_PROBLEMS, 0
        for batch in batches:
            encoded = encoder.encode(batch)
            yield from _shuffled(builder.add(encoded.groups, encoded.keys, encoded.values))
            if encoded.problems:
                told = encoded.problems[:left]
                left -= len(told)
                untold += len(encoded.problems) - len(told)
                yield from _shuffled(map(self._problem, told))
        yield from _shuffled(builder.finish())
        if untold:
            reason = f"{untold:,} more values of this state do not fit"
            problem = Problem(target.operator.uid, reason, target.state)
            yield from _shuffled([self._problem(problem)])

    def _problem(self, problem: Problem) -> Block:
        return Block(self.target.parallelism, 0, msgspec.msgpack.encode(problem))


@dataclass(frozen=True, slots=True)
class _Regroup:
    """Turns the entries of a state into those with other key groups; runs in tasks."""

    target: StateTarget
    state: KeyedState
    parts: tuple[StatePart, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        highest = self.target.operator.max_parallelism
        builder = BlockBuilder(pa.binary(), highest, self.target.parallelism)
        for part in _chosen(self.parts, batches):
            for keys, values, groups in regrouped(part, self.state, highest):
                arrays = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
                yield from _shuffled(builder.add(np.array(groups, np.int64), *arrays))
        yield from _shuffled(builder.finish())


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads a state; runs in tasks."""

    state: KeyedState
    parts: tuple[StatePart, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        if self.state.are_timers:
            return _TimerRows(self.state).schema
        return self._shape.schema

    @property
    def _shape(self) -> KeyedShape:
        is_untyped = StateTarget.is_untyped_key(self.state.key_type)
        return KeyedShape(self.state, flatten=not self.state.is_list, with_key_bytes=is_untyped)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _chosen(self.parts, batches):
            tables = rows_of(part, self.state)
            if self.state.are_timers:
                yield from map(_TimerRows(self.state), tables)
            else:
                yield from self._shape.batches(tables, part.subtask)


@dataclass(frozen=True, slots=True)
class _TimerRows:
    """Turns the tables of timers into rows."""

    state: KeyedState

    @property
    def schema(self) -> pa.Schema:
        key = self.state.schema.field("map_key").type
        fields = [
            pa.field("key", key if pa.types.is_struct(key) else pa.struct([("value", key)])),
            pa.field("expiration_timestamp_ms", pa.int64()),
            pa.field("namespace", pa.binary()),
        ]
        if StateTarget.is_untyped_key(self.state.key_type):
            fields.append(pa.field("key_bytes", pa.binary()))
        return pa.schema(fields)

    def __call__(self, table: pa.Table) -> pa.RecordBatch:
        (batch,) = table.combine_chunks().to_batches(max_chunksize=max(1, table.num_rows))
        key, schema = batch.column("map_key"), self.schema
        if not pa.types.is_struct(key.type):
            key = pa.StructArray.from_arrays([key], fields=[pa.field("value", key.type)])
        stored = batch.column("map_key_bytes").to_pylist()
        namespaces = list(map(namespace_of_timer, stored))
        arrays = [key, batch.column("key"), pa.array(namespaces, pa.binary())]
        if "key_bytes" in schema.names:
            codes = [
                one[1 if one[0] < 0xFF else 5 : len(one) - len(namespace)]
                for one, namespace in zip(stored, namespaces, strict=True)
            ]
            arrays.append(pa.array(codes, pa.binary()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes the sorted entries of one subtask, or checks them; runs in tasks."""

    target: StateTarget
    savepoint: Location | None
    name: str
    stored: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        subtask = context.partitionId()
        if subtask == self.target.parallelism:
            yield from map(_problems_in, batches)
            return
        values = pa.binary() if self.stored else value_type_in_transit(self.target)
        entries = sorted_entries(_of_subtask(batches, subtask), values)
        first = next(entries, None)
        if first is None:
            return
        writer = TableWriter(self.target, stored=self.stored)
        both = _chained(first, entries)
        file = None
        if self.savepoint is None:
            writer.check(both)
        else:
            target, name = self.target, _task_name(self.name)
            file = write_state(
                writer.tables(both),
                target.operator,
                target.state,
                target.info,
                self.savepoint,
                subtask,
                name,
            )
        yield _result(StateWritten(writer.rows, file, writer.problems, writer.first_time))


def _shuffled(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """Return blocks as the rows that go through the shuffle."""
    found = list(blocks)
    if found:
        subtasks, bands, data = zip(*found, strict=True)
        arrays = [pa.array(subtasks, pa.int32()), pa.array(bands, pa.int32())]
        arrays.append(pa.array(data, pa.binary()))
        yield pa.RecordBatch.from_arrays(arrays, names=[_SUBTASK, _BAND, _DATA])


def _chosen(parts: Sequence[StatePart], batches: Iterable[pa.RecordBatch]) -> Iterator[StatePart]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield parts[number]


def _of_subtask(batches: Iterable[pa.RecordBatch], subtask: int) -> Iterator[tuple[int, pa.Buffer]]:
    for batch in batches:
        if not batch.num_rows:
            continue
        if (batch.column(0).to_numpy() != subtask).any():
            # Keys in the wrong file would never be found again.
            place = f"partition {subtask}"
            raise CorruptStateError(place, "it got keys of another subtask")
        for band, data in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
            yield band, data.as_buffer()


def _chained(first: W, rest: Iterator[W]) -> Iterator[W]:
    yield first
    yield from rest


def _problems_in(batch: pa.RecordBatch) -> pa.RecordBatch:
    problems = [msgspec.msgpack.decode(data, type=Problem) for data in batch.column(2).to_pylist()]
    return _result(StateWritten(0, problems=problems))


def _result(written: StateWritten) -> pa.RecordBatch:
    data = msgspec.msgpack.encode(written)
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["result"])
