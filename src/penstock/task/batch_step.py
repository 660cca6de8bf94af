"""Steps over record batches: records are gathered for them, and batches handed on as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.channel.batches import BatchShape, shape_of
from penstock.channel.columns import Columns
from penstock.datastream.batch_functions import BatchFunction
from penstock.errors import Called, PenstockError
from penstock.graph.job_graph import Node
from penstock.task.failure import StepFailed, copy_for_later, fail, not_iterable
from penstock.task.moment import Moment

__all__ = ["BatchStep", "PushColumns", "batches_of", "declared_shape"]

PushColumns = Callable[[Columns, pa.Array | None], None]
"""Takes columns of records, and the event time of each if they have one."""

LARGEST_BATCH = 1 << 16
"""Records that are gathered for a batch."""


class _Context(BatchFunction.Context):
    def __init__(self, timestamps: pa.Array | None) -> None:
        self._timestamps = timestamps

    @property
    def timestamps(self) -> pa.Array | None:
        return self._timestamps


class BatchStep:
    """Calls a function without keys, with the batches that come or out of the records that do."""

    def __init__(self, node: Node, out: PushColumns, moment: Moment) -> None:
        self._node = node
        self._given = declared_shape(node.name, node.input_type)
        self._out = out
        self._moment = moment
        self._records: list[Any] = []
        self._times: list[int] = []

    def push(self, record: Any) -> None:
        """Take a record, which waits and so must not change any more."""
        self._records.append(copy_for_later(self._node.name, record))
        if self._node.has_time:
            self._times.append(self._moment.timestamp)
        if len(self._records) >= LARGEST_BATCH:
            self.drain()

    def push_columns(self, columns: Columns, times: pa.Array | None) -> None:
        """Take many records at once."""
        self.drain()
        self._call(self._given.batch(columns), times)

    def drain(self) -> None:
        """Make a batch of what was gathered."""
        records, self._records = self._records, []
        times, self._times = self._times, []
        if records:
            at = pa.array(times, pa.int64()) if self._node.has_time else None
            self._call(_encoded(self._node.name, self._given, records), at)

    def _call(self, batch: pa.RecordBatch, times: pa.Array | None) -> None:
        for columns, at in batches_of(self._node, batch, times, _Context(times)):
            self._out(columns, at)


def declared_shape(step: str, type_info: Any) -> BatchShape:
    """Return the shape of a type that was found to have one when the program was built."""
    shape = shape_of(type_info)
    assert shape is not None, f"the type at step {step!r} has columns"
    return shape


def batches_of(
    node: Node, batch: pa.RecordBatch, times: pa.Array | None, context: Any
) -> Iterator[tuple[Columns, pa.Array | None]]:
    """Call a function of record batches; iterate over what it makes, as columns, checked.

    `times` are the event times of the records that it gets, if they have some.
    """
    shape = declared_shape(node.name, node.output_type)
    where = Called(f"process_batch() with {batch.num_rows} records")
    results: Any = None
    try:
        results = node.function.process_batch(batch, context)
        if isinstance(results, pa.RecordBatch):
            results = (results,)
        for made in () if results is None else results:
            one, at = made if _has_times(made) else (made, None)
            columns = shape.columns(one)
            if one.num_rows:
                yield columns, None if times is None else _times_of(one, at, times)
    except StepFailed:
        raise
    except (Exception, SystemExit) as error:
        fail(node.name, where, not_iterable(error, results))


def _has_times(made: Any) -> bool:
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], pa.RecordBatch)


def _times_of(made: pa.RecordBatch, given: Any, times: pa.Array) -> pa.Array:
    if given is None and made.num_rows != len(times):
        message = (
            f"its stream has event time, and it yielded {made.num_rows} records for "
            f"{len(times)}: yield (batch, timestamps) to say when they are"
        )
        raise ValueError(message)
    if given is None:
        return times
    given = given if isinstance(given, pa.Array) else pa.array(given, pa.int64())
    if len(given) != made.num_rows or given.null_count:
        message = f"it yielded {made.num_rows} records with {len(given)} timestamps"
        raise ValueError(message)
    return given.cast(pa.int64())


def _encoded(step: str, shape: BatchShape, records: list[Any]) -> pa.RecordBatch:
    try:
        return shape.encode(records)
    except (PenstockError, ValueError) as error:
        for record in records:
            try:
                shape.encode([record])
            except (PenstockError, ValueError) as at_fault:
                fail(step, record, at_fault)
        fail(step, Called("process_batch()"), error)
