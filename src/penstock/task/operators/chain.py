"""A chain of operators as one function of a record.

Each step calls the next one with its results, so a record runs through the whole chain before
the next record starts, as in Flink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat

import pyarrow as pa

from penstock.channel.batches import BatchSchema
from penstock.channel.columns import Columns
from penstock.common.event_time import NO_TIMESTAMP
from penstock.connectors.contracts.sink import SinkWriter
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.task.operators.async_step import AsyncStep
from penstock.task.operators.batch_step import BatchStep, PushColumns, declared_schema
from penstock.task.operators.contexts import (
    BroadcastSideContext,
    BroadcastStates,
    ElementSideContext,
    RecordContext,
)
from penstock.task.operators.record_counts import RecordCounts
from penstock.task.operators.sink_step import BlockSink, columns_sink, sink_step, takes_blocks
from penstock.task.operators.steps import (
    Push,
    fan_out,
    flat_map_step,
    function_step,
    split_by_tag,
    two_steps,
)
from penstock.task.partitioning.partitioners import StreamPartitioner
from penstock.task.step_names import step_name
from penstock.task.time.timestamps import ChainTimeService


class OperatorChain:
    """The compiled operators of a stage, ending in partitioners and sink writers."""

    def __init__(
        self,
        stage: Stage,
        partitioners: Sequence[StreamPartitioner],
        writers: Mapping[int, SinkWriter],
        time: ChainTimeService,
    ) -> None:
        self._stage = stage
        self._partitioners = partitioners
        self._writers = writers
        self._time = time
        self._buffering: list[AsyncStep | BatchStep | BlockSink] = []
        self.counts = RecordCounts(stage)

    def downstream_of(self, node: Node) -> Push:
        """Return the step that takes the results of `node`, those for side outputs included."""
        sides = {tag: self._out(node, tag) for tag in self._stage.side_outputs(node)}
        main = self._out(node, None)
        if node.watermarks is not None:
            main = self._time.steps[node.id].push(main)
        return split_by_tag(node.name, main, sides) if sides else main

    def _out(self, node: Node, tag_id: str | None) -> Push:
        chained = [
            self.step_of(n)
            for n in self._stage.followers(node)
            if (None if (tag := n.inputs[0].tag) is None else tag.tag_id) == tag_id
        ]
        partitioners = self._outputs(node, tag_id)
        push = fan_out(node.name, [*chained, *(p.push for p in partitioners)])
        return self.counts.edge(node, tag_id, push, [partial(_count_of, p) for p in partitioners])

    def _outputs(self, node: Node, tag_id: str | None) -> list[StreamPartitioner]:
        output = node.id, tag_id
        return [p for p in self._partitioners if (p.channel.source_node, p.channel.tag) == output]

    def columns_downstream_of(self, node: Node) -> PushColumns:
        """Return what takes the record batches that `node` returns, as columns."""
        schema = declared_schema(node.name, node.output_type)
        outs = [self._columns_into(follower, schema) for follower in self._stage.followers(node)]
        outs += [partitioner.push_columns for partitioner in self._outputs(node, None)]
        if len(outs) == 1:
            return self.counts.columns_edge(node, outs[0])

        def push(columns: Columns, times: pa.Array | None) -> None:
            for out in outs:
                out(columns, times)

        return self.counts.columns_edge(node, push)

    def _columns_into(self, node: Node, schema: BatchSchema) -> PushColumns:
        if node.kind is OperatorKind.PROCESS_BATCH:
            return self.batch_step(node).push_columns
        if node.kind is OperatorKind.SINK:
            return columns_sink(node.name, self._writers[node.id], schema)
        step, record_time = self.step_of(node), self._time.record_time

        def push(columns: Columns, times: pa.Array | None) -> None:
            records = schema.records(columns)
            at = repeat(NO_TIMESTAMP) if times is None else times.to_pylist()
            before = record_time.timestamp
            for record_time.timestamp, record in zip(at, records, strict=False):
                step(record)
            record_time.timestamp = before

        return push

    def batch_step(self, node: Node) -> BatchStep:
        """Return the step of a function of record batches; it takes records or columns."""
        out, name = self.columns_downstream_of(node), step_name(self._stage, node)
        step = BatchStep(node, name, out, self._time.record_time)
        self._buffer(node, step)
        return step

    def _buffer(self, node: Node, step: AsyncStep | BatchStep | BlockSink) -> None:
        self._buffering.append(step)
        self.counts.takes(node, partial(_count_of, step))

    def step_of(self, node: Node) -> Push:
        """Return the step of an operator without keys."""
        if node.kind is OperatorKind.SINK:
            return self._sink(node, self._writers[node.id])
        if node.kind is OperatorKind.PROCESS_BATCH:
            return self.batch_step(node).push
        out, name = self.downstream_of(node), step_name(self._stage, node)
        match node.kind:
            case OperatorKind.DECOUPLE | OperatorKind.ASSIGN_TIMESTAMPS:
                return out
            case OperatorKind.PROCESS:
                process, context = node.function.process_element, self._context(node)
                return flat_map_step(name, lambda record: process(record, context), out)
            case OperatorKind.ASYNC:
                step = AsyncStep(name, node.function, out, self._time.record_time)
                self._buffer(node, step)
                return step.push
        return function_step(node, name, out)

    def _sink(self, node: Node, writer: SinkWriter) -> Push:
        step, is_head = step_name(self._stage, node), node is self._stage.head
        push, count = sink_step(node, step, writer.write, is_head=is_head)
        if not takes_blocks(node, writer):
            if count is not None:
                self.counts.takes(node, count)
            return push
        block = BlockSink(node.name, writer, push)
        self._buffer(node, block)
        return block.step()

    def drain(self) -> None:
        """Process the records that steps still buffer; called after the last record."""
        # A step is added after all steps downstream of it: reversed, each drains into the next.
        for step in reversed(self._buffering):
            step.drain()

    def inputs(self, node: Node, broadcast: BroadcastStates | None) -> tuple[Push, ...]:
        """Return the steps for the inputs of `node`, the head of a stage without keys."""
        if node.kind.has_broadcast_side:
            assert broadcast is not None
            out, process = self.downstream_of(node), node.function.process_element
            time = self._time
            context = ElementSideContext(broadcast, time.record_time, time.service(node))
            push = flat_map_step(node.name, lambda record: process(record, context), out)
            return push, self.broadcast_side(node, out, broadcast)
        if node.kind.has_two_inputs:
            return two_steps(node, self.downstream_of(node), self._context(node))
        return (self.step_of(node),)

    def broadcast_side(self, node: Node, out: Push, states: BroadcastStates) -> Push:
        """Return the step for the broadcast side of `node`."""
        time = self._time
        context = BroadcastSideContext(states, time.record_time, time.service(node))
        process = node.function.process_broadcast_element
        return flat_map_step(node.name, lambda record: process(record, context), out)

    def _context(self, node: Node) -> RecordContext:
        return RecordContext(self._time.record_time, self._time.service(node))


def _count_of(step: AsyncStep | BatchStep | BlockSink | StreamPartitioner) -> int:
    return step.count
