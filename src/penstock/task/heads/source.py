"""Heads that bring records into a job: external sources, and plans that Spark runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock.common.event_time import MIN_WATERMARK
from penstock.connectors.contracts.source import Chunk, Source, TimestampedChunk
from penstock.errors import InvalidJobError, PenstockError
from penstock.task.failure import fail
from penstock.task.heads.context import HeadContext


def run_source(context: HeadContext) -> None:
    """Read this subtask's ranges of a source."""
    last = _push(context, _read(context))
    assigned = context.time.newest_timestamp
    newest = last if assigned == MIN_WATERMARK else assigned
    if newest > MIN_WATERMARK:
        context.result.event_time_lag = max(0, int(time.time() * 1000) - newest)


def run_native(context: HeadContext) -> None:
    """Take the rows that Spark's plan made of the stage's input."""
    _push(context, _rows(context))
    # The rows that come out of the plan are not the records that went in.
    context.result.records_in = context.work.rows


def _push(context: HeadContext, chunks: Iterator[Chunk]) -> int:
    """Push records through the chain; return the timestamp of the last that has one."""
    last = MIN_WATERMARK
    context.start_functions()
    push = context.chain.downstream_of(context.node)
    forwards = context.forwards_columns
    for chunk in chunks:
        if forwards:
            context.forward(chunk)
        elif isinstance(chunk, TimestampedChunk):
            context.time.switch_split(chunk.split)
            context.push_all(chunk.records, push, chunk.times)
            last = max(last, chunk.times[-1]) if chunk.times else last
        else:
            assert isinstance(chunk, list)
            context.push_all(chunk, push)
    return last


def _rows(context: HeadContext) -> Iterator[Chunk]:
    node = context.node
    if context.batches is not None:
        yield from node.function.read_batches(context.batches)
    elif context.work.rows:
        message = f"step {node.name!r} is run by Spark, and this job does not run on Spark"
        raise InvalidJobError(message)


def _read(context: HeadContext) -> Iterator[Chunk]:
    source: Source = context.node.function
    if context.batches is not None:
        # In a micro-batch without ranges Spark's input is what was read before: not to be read.
        if any(w.ranges for w in context.instruction.work):
            yield from context.node.function.read_batches(context.batches)
        return
    read = source.read if context.forwards_columns else source.read_lists
    for split_range in context.work.ranges:
        context.time.switch_split(split_range.split)
        try:
            yield from read(split_range)
        except PenstockError:
            raise
        except Exception as error:
            fail(context.node.name, split_range, error)
