"""The steps that end in a sink: record by record, in blocks, or as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.channel.batches import BatchSchema
from penstock.channel.columns import Columns
from penstock.common.typeinfo import PickledBytesTypeInfo, TypeInformation, is_immutable
from penstock.connectors.contracts.sink import SinkWriter
from penstock.errors import MethodCall
from penstock.graph.job_graph import Node
from penstock.task.failure import fail
from penstock.task.operators.batch_step import PushColumns
from penstock.task.operators.steps import Push
from penstock.types.coercion import Coercion, coercion_for

_BLOCK_SIZE = 512
"""Records of a block: few enough to be in the processor's cache when they are written."""


def sink_step(
    node: Node, step: str, write: Push, *, is_head: bool
) -> tuple[Push, Callable[[], int] | None]:
    """Return a step that gives each record to a writer at once, and how many it has given.

    The step of a sink that cannot fail is the writer's own method, which does not count.
    """
    if not node.function.can_fail:
        return write, None
    coercion = _coercion(node, is_head=is_head)
    count = 0

    def push(record: Any) -> None:
        nonlocal count
        try:
            write(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        count += 1

    def push_checked(record: Any) -> None:
        nonlocal count
        try:
            if not exact(record):
                normal(record, "")
            write(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        count += 1

    if coercion is None:
        return push, lambda: count
    exact, normal = coercion.exact, coercion.normal
    return push_checked, lambda: count


def takes_blocks(node: Node, writer: SinkWriter) -> bool:
    """Return whether records may be collected in blocks: no function can change them meanwhile."""
    declared: TypeInformation | None = node.input_type
    return writer.supports_write_many and declared is not None and is_immutable(declared)


class BlockSink:
    """Collects records for a writer that takes many at once."""

    def __init__(self, step: str, writer: SinkWriter, one_by_one: Push) -> None:
        self._step = step
        self._write_many = writer.write_many
        self._one_by_one = one_by_one
        self._records: list[Any] = []
        self.count = 0
        """How many records it has written."""

    def step(self) -> Push:
        """Return the step that takes one record."""
        records, append, drain = self._records, self._records.append, self.drain

        def push(record: Any) -> None:
            append(record)
            if len(records) >= _BLOCK_SIZE:
                drain()

        return push

    def drain(self) -> None:
        """Write the collected records."""
        if not self._records:
            return
        try:
            are_written = self._write_many(self._records)
        except (Exception, SystemExit) as error:
            fail(self._step, MethodCall(f"write_many() with {len(self._records)} records"), error)
        if not are_written:
            for record in self._records:
                self._one_by_one(record)
        self.count += len(self._records)
        self._records.clear()


def columns_sink(step: str, writer: SinkWriter, schema: BatchSchema) -> PushColumns:
    """Return a step that gives columns to a writer."""

    def push(columns: Columns, times: pa.Array | None) -> None:
        batch = schema.batch(columns)
        try:
            writer.write_batch(batch, lambda: schema.records(columns))
        except (Exception, SystemExit) as error:
            fail(step, MethodCall(f"write_batch() with {batch.num_rows} records"), error)

    return push


def _coercion(node: Node, *, is_head: bool) -> Coercion | None:
    declared = node.input_type
    # The records of a channel were coerced when they were written.
    if declared is None or is_head or not node.function.checks_type:
        return None
    return None if isinstance(declared, PickledBytesTypeInfo) else coercion_for(declared)
