"""A chain of operators as one function from a record to nothing.

Each step calls the next with what it makes, so a record runs through the whole chain before
the next one starts, as it does in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import pyarrow as pa

from penstock.channel.batches import BatchShape
from penstock.channel.columns import Columns
from penstock.common.event_time import NO_TIMESTAMP
from penstock.connectors.sink import SinkWriter
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
)
from penstock.datastream.output_tag import is_tagged
from penstock.errors import Called
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.task.async_step import AsyncStep
from penstock.task.batch_step import BatchStep, PushColumns, declared_shape
from penstock.task.chain_time import ChainTime
from penstock.task.context import (
    BroadcastSideContext,
    BroadcastStates,
    ElementSideContext,
    RecordContext,
)
from penstock.task.failure import StepFailed, copy_for_later, fail, nobody_takes, not_iterable
from penstock.task.operators import callable_of
from penstock.task.sink_step import SinkBlock, sink_push, takes_blocks

Push = Callable[[Any], None]

Output = tuple[int, str | None]
"""A node's main output, or one of its side outputs by its tag."""


class Chain:
    """The compiled operators of a stage, ending in emitters and sink writers."""

    def __init__(
        self,
        stage: Stage,
        emitters: Mapping[Output, list[Push]],
        writers: Mapping[int, SinkWriter],
        time: ChainTime,
        emitters_of_columns: Mapping[Output, list[PushColumns]] | None = None,
    ) -> None:
        self._stage = stage
        self._emitters = emitters
        self._writers = writers
        self._emitters_of_columns = emitters_of_columns or {}
        self._waiting: list[AsyncStep | BatchStep] = []
        self._blocks: list[SinkBlock] = []
        self._time = time

    def behind(self, node: Node) -> Push:
        """Return what takes the records that `node` makes, those for side outputs among them."""
        sides = {tag: self._out(node, tag) for tag in self._stage.side_outputs(node)}
        main = self._out(node, None)
        if node.watermarks is not None:
            main = self._time.step(node).push(main)
        return _split_by_tag(node.name, main, sides) if sides else main

    def _out(self, node: Node, tag_id: str | None) -> Push:
        followers = [
            self.into(n)
            for n in self._stage.followers(node)
            if (None if (tag := n.inputs[0].tag) is None else tag.tag_id) == tag_id
        ]
        return _fan_out(node.name, [*followers, *self._emitters.get((node.id, tag_id), ())])

    def columns_behind(self, node: Node) -> PushColumns:
        """Return what takes the record batches that `node` makes, as columns."""
        shape = declared_shape(node.name, node.output_type)
        outs = [self._columns_into(follower, shape) for follower in self._stage.followers(node)]
        outs += self._emitters_of_columns.get((node.id, None), ())
        if len(outs) == 1:
            return outs[0]

        def push(columns: Columns, times: pa.Array | None) -> None:
            for out in outs:
                out(columns, times)

        return push

    def _columns_into(self, node: Node, shape: BatchShape) -> PushColumns:
        if node.kind is OperatorKind.PROCESS_BATCH:
            return self.batch_step(node).push_columns
        if node.kind is OperatorKind.SINK:
            return _columns_sink(node.name, self._writers[node.id], shape)
        into, moment = self.into(node), self._time.moment

        def push(columns: Columns, times: pa.Array | None) -> None:
            records = shape.records(columns)
            at = repeat(NO_TIMESTAMP) if times is None else times.to_pylist()
            before = moment.timestamp
            for moment.timestamp, record in zip(at, records, strict=False):
                into(record)
            moment.timestamp = before

        return push

    def batch_step(self, node: Node) -> BatchStep:
        """Return what takes the records that come to `node`, one by one or as columns."""
        step = BatchStep(node, self.columns_behind(node), self._time.moment)
        self._waiting.append(step)
        return step

    def into(self, node: Node) -> Push:
        """Return what takes the records that come to `node`, an operator without keys."""
        if node.kind is OperatorKind.SINK:
            return self._into_sink(node, self._writers[node.id])
        if node.kind is OperatorKind.PROCESS_BATCH:
            return self.batch_step(node).push
        out = self.behind(node)
        if node.kind in (OperatorKind.DECOUPLE, OperatorKind.ASSIGN_TIMESTAMPS):
            return out
        if node.kind is OperatorKind.MAP:
            return map_step(node.name, callable_of(node.function, MapFunction), out)
        if node.kind is OperatorKind.FILTER:
            return filter_step(node.name, callable_of(node.function, FilterFunction), out)
        if node.kind is OperatorKind.FLAT_MAP:
            return flat_map_step(node.name, callable_of(node.function, FlatMapFunction), out)
        if node.kind is OperatorKind.PROCESS:
            process, context = node.function.process_element, self._context(node)
            return flat_map_step(node.name, lambda record: process(record, context), out)
        if node.kind is OperatorKind.ASYNC:
            step = AsyncStep(node.name, node.function, out, self._time.moment)
            self._waiting.append(step)
            return step.push
        message = f"{node.kind} cannot stand inside a chain"
        raise AssertionError(message)

    def _into_sink(self, node: Node, writer: SinkWriter) -> Push:
        push = sink_push(node, writer.write, is_head=node is self._stage.head)
        if not takes_blocks(node, writer):
            return push
        block = SinkBlock(node.name, writer, push)
        self._blocks.append(block)
        return block.taker()

    def drain(self) -> None:
        """Let what waits inside the chain come to its end; called behind the last record."""
        # Steps are made from the end of the chain to its head, and hand on what they drain.
        for step in reversed(self._waiting):
            step.drain()
        for block in self._blocks:
            block.drain()

    def inputs(self, node: Node, broadcast: BroadcastStates | None) -> tuple[Push, ...]:
        """Return what takes the records of each input of `node`, the head of a plain stage."""
        if node.kind.has_broadcast_side:
            assert broadcast is not None
            out, process = self.behind(node), node.function.process_element
            context = ElementSideContext(broadcast, self._time.moment, self._time.service(node))
            push = flat_map_step(node.name, lambda record: process(record, context), out)
            return push, self.broadcast_side(node, out, broadcast)
        if node.kind.has_two_inputs:
            return two_steps(node, self.behind(node), self._context(node))
        return (self.into(node),)

    def broadcast_side(self, node: Node, out: Push, states: BroadcastStates) -> Push:
        """Return what takes the records of the broadcast side of `node`."""
        time = self._time
        context = BroadcastSideContext(states, time.moment, time.service(node))
        process = node.function.process_broadcast_element
        return flat_map_step(node.name, lambda record: process(record, context), out)

    def _context(self, node: Node) -> RecordContext:
        return RecordContext(self._time.moment, self._time.service(node))


def two_steps(node: Node, out: Push, context: Any) -> tuple[Push, Push]:
    """Return what an operator with two inputs does with a record of each."""
    step, function = node.name, node.function
    if node.kind in (OperatorKind.CO_MAP, OperatorKind.KEYED_CO_MAP):
        return co_map_step(step, function.map1, out), co_map_step(step, function.map2, out)
    if node.kind in (OperatorKind.CO_FLAT_MAP, OperatorKind.KEYED_CO_FLAT_MAP):
        first, second = function.flat_map1, function.flat_map2
    else:
        process1, process2 = function.process_element1, function.process_element2
        first, second = (lambda r: process1(r, context)), (lambda r: process2(r, context))
    return flat_map_step(step, first, out), flat_map_step(step, second, out)


def map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by one other."""

    def push(record: Any) -> None:
        try:
            result = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        out(result)

    return push


def co_map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by one other, or by none where it gives None."""

    def push(record: Any) -> None:
        try:
            result = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        if result is not None:
            out(result)

    return push


def filter_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that lets some records through."""

    def push(record: Any) -> None:
        try:
            keep = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        if keep:
            out(record)

    return push


def flat_map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by any number of others."""

    def push(record: Any) -> None:
        results = None
        try:
            results = function(record)
            if results is not None:
                for result in results:
                    out(result)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(step, record, not_iterable(error, results))

    return push


def _columns_sink(step: str, writer: SinkWriter, shape: BatchShape) -> PushColumns:
    def push(columns: Columns, times: pa.Array | None) -> None:
        batch = shape.batch(columns)
        try:
            writer.write_batch(batch, lambda: shape.records(columns))
        except (Exception, SystemExit) as error:
            fail(step, Called(f"write_batch() with {batch.num_rows} records"), error)

    return push


def _split_by_tag(step: str, main: Push, sides: Mapping[str, Push]) -> Push:
    """Return what tells the records for side outputs from the others, as PyFlink does."""

    def push(record: Any) -> None:
        if is_tagged(record):
            tag, value = _tag_and_record(step, record)
            side = sides.get(tag)
            if side is None:
                nobody_takes(step, record, sides)
            side(value)
        else:
            main(record)

    return push


def _tag_and_record(step: str, yielded: tuple[Any, ...]) -> tuple[str, Any]:
    if len(yielded) != 2:
        count = len(yielded) - 1
        message = f"a side output takes (tag, record); the function gave a tag and {count} values"
        fail(step, yielded, TypeError(message))
    return yielded[0].tag_id, yielded[1]


def _fan_out(step: str, outs: list[Push]) -> Push:
    if len(outs) == 1:
        return outs[0]
    if not outs:
        return lambda _: None
    *others, last = outs

    def push(record: Any) -> None:
        # Branches must not see each other's changes to a record.
        for out in others:
            out(copy_for_later(step, record))
        last(record)

    return push
