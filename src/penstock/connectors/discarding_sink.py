"""Sink that discards every value."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.connectors.contracts import sink
from penstock.connectors.staging.staged_output import ImmediatePublisher


class DiscardingSink(sink.Sink):
    """Discards every value; for benchmarks, and for jobs that run for their side effects."""

    checks_type = False
    can_fail = False

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        return _Writer()

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        return ImmediatePublisher(context, lambda data: None)


class _Writer(sink.SinkWriter):
    def __init__(self) -> None:
        # A deque of length 0 drops every value without a call into Python.
        nothing: deque[Any] = deque(maxlen=0)
        self.write = nothing.append  # type: ignore[method-assign,assignment]

    def write(self, value: Any) -> None: ...

    def write_batch(self, batch: pa.RecordBatch, values: Callable[[], list[Any]]) -> None:
        pass

    def stage(self) -> bytes:
        return b""
