"""Sink that prints on the driver's standard output."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from penstock.common.java_text import format_value
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging import load_staged, stage_bytes

__all__ = ["PrintSink"]


class PrintSink(Sink):
    """Prints each value on a line of its own, as Flink would print it.

    The subtask's number stands in front if there are several subtasks (``2> ``), the
    identifier if there is one (``id> ``), or both (``id:2> ``).
    """

    def __init__(self, identifier: str | None = None, *, stderr: bool = False) -> None:
        self._identifier = identifier
        self._stderr = stderr

    def writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(context, self._prefix(context.subtask, context.parallelism))

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        return _Publisher(stderr=self._stderr)

    def _prefix(self, subtask: int, parallelism: int) -> str:
        number = str(subtask + 1) if parallelism > 1 else ""
        shown = ":".join(filter(None, (self._identifier, number)))
        return f"{shown}> " if shown else ""


class _Writer(SinkWriter):
    def __init__(self, context: WriterContext, prefix: str) -> None:
        self._context = context
        self._type_info = context.type_info
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, value: Any) -> None:
        self._lines.append(f"{self._prefix}{format_value(value, self._type_info)}\n")

    def stage(self) -> bytes:
        # A lone surrogate becomes "?", as it does when Java prints it.
        return stage_bytes("".join(self._lines).encode("utf-8", "replace"), self._context)


class _Publisher(SinkPublisher):
    def __init__(self, *, stderr: bool) -> None:
        self._stderr = stderr

    def publish(self, staged: Sequence[bytes]) -> None:
        # Looked up each time: whoever redirects standard output means what is printed now.
        stream = sys.stderr if self._stderr else sys.stdout
        for entry in staged:
            stream.write(load_staged(entry).decode("utf-8"))
        stream.flush()
