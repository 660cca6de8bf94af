"""Steps over record batches: records are collected into batches, columns are passed as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.channel.batches import BatchSchema, batch_schema_for
from penstock.channel.columns import Columns
from penstock.datastream.batch_functions import BatchFunction
from penstock.errors import MethodCall
from penstock.graph.job_graph import Node
from penstock.task.failure import copy_if_mutable, encode_records, fail, not_iterable
from penstock.task.time.timer_service import RecordTime

PushColumns = Callable[[Columns, pa.Array | None], None]
"""Processes columns of records, and the event time of each if they have one."""

LARGEST_BATCH = 1 << 16
"""Records that are collected into one batch."""


class _Context(BatchFunction.Context):
    def __init__(self, timestamps: pa.Array | None) -> None:
        self._timestamps = timestamps

    @property
    def timestamps(self) -> pa.Array | None:
        return self._timestamps


class BatchStep:
    """Calls a function of record batches, with columns or with records collected into batches."""

    def __init__(self, node: Node, step: str, out: PushColumns, record_time: RecordTime) -> None:
        self._node = node
        self._step = step
        self._schema = declared_schema(node.name, node.input_type)
        self._out = out
        self._record_time = record_time
        self._records: list[Any] = []
        self._times: list[int] = []
        self.count = 0
        """How many records its function got."""

    def push(self, record: Any) -> None:
        """Collect a record, as a copy if it could change."""
        self._records.append(copy_if_mutable(self._node.name, record))
        if self._node.has_time:
            self._times.append(self._record_time.timestamp)
        if len(self._records) >= LARGEST_BATCH:
            self.drain()

    def push_columns(self, columns: Columns, times: pa.Array | None) -> None:
        """Process many records at once."""
        self.drain()
        self._call(self._schema.batch(columns), times)

    def drain(self) -> None:
        """Process the collected records as a batch."""
        records, self._records = self._records, []
        times, self._times = self._times, []
        if records:
            at = pa.array(times, pa.int64()) if self._node.has_time else None
            self._call(encode_records(self._step, records, self._schema.encode), at)

    def _call(self, batch: pa.RecordBatch, times: pa.Array | None) -> None:
        self.count += batch.num_rows
        for columns, at in batches_of(self._node, batch, times, _Context(times)):
            self._out(columns, at)


def declared_schema(step: str, type_info: Any) -> BatchSchema:
    """Return the batch schema of a type; building the program checked that it has one."""
    schema = batch_schema_for(type_info)
    assert schema is not None, f"the type at step {step!r} has columns"
    return schema


def batches_of(
    node: Node, batch: pa.RecordBatch, times: pa.Array | None, context: Any
) -> Iterator[tuple[Columns, pa.Array | None]]:
    """Call a function of record batches; yield its results as columns, checked.

    `times` are the event times of the records in `batch`, if they have some.
    """
    schema = declared_schema(node.name, node.output_type)
    call = MethodCall(f"process_batch() with {batch.num_rows} records")
    results: Any = None
    try:
        results = node.function.process_batch(batch, context)
        if isinstance(results, pa.RecordBatch):
            results = (results,)
        for result in () if results is None else results:
            one, at = result if _has_times(result) else (result, None)
            columns = schema.columns(one)
            if one.num_rows:
                yield columns, None if times is None else _times_of(one, at, times)
    except (Exception, SystemExit) as error:
        fail(node.name, call, not_iterable(error, results))


def _has_times(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], pa.RecordBatch)


def _times_of(made: pa.RecordBatch, given: Any, times: pa.Array) -> pa.Array:
    if given is None and made.num_rows != len(times):
        message = (
            f"its stream has event time, and it yielded {made.num_rows} records for "
            f"{len(times)}: yield (batch, timestamps)"
        )
        raise ValueError(message)
    if given is None:
        return times
    given = given if isinstance(given, pa.Array) else pa.array(given, pa.int64())
    if len(given) != made.num_rows or given.null_count:
        message = f"it yielded {made.num_rows} records with {len(given)} timestamps"
        raise ValueError(message)
    return given.cast(pa.int64())
