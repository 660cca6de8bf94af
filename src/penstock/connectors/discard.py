"""Sink that keeps nothing."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)

__all__ = ["DiscardingSink"]


class DiscardingSink(Sink):
    """Throws every value away; for measuring, and for jobs run for their side effects."""

    checks_type = False
    can_fail = False

    def writer(self, context: WriterContext) -> SinkWriter:
        return _Writer()

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _Publisher()


class _Writer(SinkWriter):
    def __init__(self) -> None:
        # A deque of no length forgets what it is given, without a call into Python.
        nothing: deque[Any] = deque(maxlen=0)
        self.write = nothing.append  # type: ignore[method-assign,assignment]

    def write(self, value: Any) -> None: ...

    def write_batch(self, batch: pa.RecordBatch, values: Callable[[], list[Any]]) -> None:
        pass

    def stage(self) -> bytes:
        return b""


class _Publisher(SinkPublisher):
    def publish(self, staged: Sequence[bytes]) -> None:
        pass
