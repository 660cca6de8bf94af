"""Sink that keeps nothing."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

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

    def writer(self, context: WriterContext) -> SinkWriter:
        return _Writer()

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _Publisher()


class _Writer(SinkWriter):
    def write(self, value: Any) -> None:
        pass

    def write_many(self, values: Iterable[Any]) -> None:
        for _ in values:  # a generator has to run, whatever becomes of its values
            pass

    def stage(self) -> bytes:
        return b""


class _Publisher(SinkPublisher):
    def publish(self, staged: Sequence[bytes]) -> None:
        pass
