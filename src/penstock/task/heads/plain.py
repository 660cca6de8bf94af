"""Heads without keys that read channels: record by record, or batch by batch."""

from __future__ import annotations

from penstock.task.heads.context import HeadContext


def run_plain(context: HeadContext) -> None:
    """Push the records of all inputs through the chain; those of a broadcast side come first."""
    context.start_functions()
    pushes = context.chain.inputs(context.node, context.functions.broadcast)
    forwards = context.forwards_columns
    for broadcast in (True, False):
        for part in context.slices(broadcast=broadcast):
            if forwards:
                context.forward(part.values())
            else:
                context.push_slice(part, pushes[part.input])


def run_batches(context: HeadContext) -> None:
    """Give the columns of the input to a function of record batches, as they are."""
    context.start_functions()
    step = context.chain.batch_step(context.node)
    for part in context.slices():
        segment = part.segment
        context.result.records_in += segment.rows
        step.push_columns((segment.layout, segment.columns), segment.times)
        context.flush_if_full()
