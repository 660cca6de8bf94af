"""The end of a chain at a sink: records one by one, or collected for a writer that takes many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.typeinfo import PickledBytesTypeInfo, TypeInformation, is_immutable
from penstock.connectors.sink import SinkWriter
from penstock.errors import Called
from penstock.graph.job_graph import Node
from penstock.state.fitting import Fit, fit_for
from penstock.task.failure import fail

__all__ = ["SinkBlock", "sink_push", "takes_blocks"]

Push = Callable[[Any], None]

_MOST = 512
"""Records of a block: they are still in the processor's cache when they are written."""


def sink_push(node: Node, write: Push, *, is_head: bool) -> Push:
    """Return what gives records to a writer one by one, as soon as they are there."""
    if not node.function.can_fail:
        return write
    fit = _fit(node, is_head=is_head)
    step = node.name

    def push(record: Any) -> None:
        try:
            write(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)

    def push_checked(record: Any) -> None:
        try:
            if not exact(record):
                normal(record, "")
            write(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)

    if fit is None:
        return push
    exact, normal = fit.exact, fit.normal
    return push_checked


def takes_blocks(node: Node, writer: SinkWriter) -> bool:
    """Tell whether records may wait for each other: nobody can change them meanwhile."""
    declared: TypeInformation | None = node.input_type
    return writer.takes_many and declared is not None and is_immutable(declared)


class SinkBlock:
    """Collects records for a writer that takes many at once."""

    def __init__(self, step: str, writer: SinkWriter, one_by_one: Push) -> None:
        self._step = step
        self._write_many = writer.write_many
        self._one_by_one = one_by_one
        self._records: list[Any] = []

    def taker(self) -> Push:
        """Return what takes one record."""
        records, append, drain = self._records, self._records.append, self.drain

        def push(record: Any) -> None:
            append(record)
            if len(records) >= _MOST:
                drain()

        return push

    def drain(self) -> None:
        """Give on what is there; called behind the last record too."""
        if not self._records:
            return
        try:
            are_written = self._write_many(self._records)
        except (Exception, SystemExit) as error:
            fail(self._step, Called(f"write_many() with {len(self._records)} records"), error)
        if not are_written:
            for record in self._records:
                self._one_by_one(record)
        self._records.clear()


def _fit(node: Node, *, is_head: bool) -> Fit | None:
    declared = node.input_type
    # What comes out of a channel was fitted when it went in.
    if declared is None or is_head or not node.function.checks_type:
        return None
    return None if isinstance(declared, PickledBytesTypeInfo) else fit_for(declared)
