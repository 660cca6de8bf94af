"""Sink that prints values on the driver's standard output."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import sys
from typing import Any

from penstock.common.text.java_text import format_value
from penstock.connectors.contracts import sink
from penstock.connectors.staging.staged_output import ImmediatePublisher, stage_bytes


class PrintSink(sink.Sink):
    """Prints each value on a line of its own, as Flink would print it.

    A line starts with the number of the subtask if there are several (``2> ``), with the identifier
    if there is one (``id> ``), or with both (``id:2> ``).
    """

    def __init__(self, identifier: str | None = None, *, stderr: bool = False) -> None:
        self._identifier = identifier
        self._stderr = stderr

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        return _Writer(context, self._prefix(context.subtask, context.parallelism))

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        return ImmediatePublisher(context, self._print)

    def _print(self, lines: bytes) -> None:
        # Looked up each time, because the program may have redirected standard output since.
        stream = sys.stderr if self._stderr else sys.stdout
        stream.write(lines.decode("utf-8"))
        stream.flush()

    def _prefix(self, subtask: int, parallelism: int) -> str:
        number = str(subtask + 1) if parallelism > 1 else ""
        shown = ":".join(filter(None, (self._identifier, number)))
        return f"{shown}> " if shown else ""


class _Writer(sink.SinkWriter):
    def __init__(self, context: sink.WriterContext, prefix: str) -> None:
        self._context = context
        self._type_info = context.type_info
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, value: Any) -> None:
        self._lines.append(f"{self._prefix}{format_value(value, self._type_info)}\n")

    def stage(self) -> bytes:
        # A lone surrogate becomes "?", as it does when Java prints it.
        return stage_bytes("".join(self._lines).encode("utf-8", "replace"), self._context)
