"""Stages the values themselves, as a sequence of pickles, for sinks that run on the driver."""
# ruff: noqa: D102 - the contract documents the methods of a writer

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle

from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.connectors.staging.durable_files import check_content
from penstock.connectors.staging.staged_output import StagedOutput, stage_bytes
from penstock.types.coercion import coercion_for


class PickledValuesWriter(SinkWriter):
    """Pickles each value at once, coerced to its type: its producer may change it afterwards."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._coerce = coercion_for(context.type_info or PickledBytesTypeInfo())
        self._buffer = io.BytesIO()
        self._pickler = pickle.Pickler(self._buffer, pickle.HIGHEST_PROTOCOL)

    def write(self, value: Any) -> None:
        value = self._coerce(value)
        begin = self._buffer.tell()
        try:
            self._pickler.dump(value)
        except (pickle.PicklingError, AttributeError, TypeError):
            # Classes of the user's main program cannot be imported in a task. cloudpickle ships
            # them by value, but is too slow to be tried first.
            self._buffer.seek(begin)
            self._buffer.truncate()
            self._buffer.write(cloudpickle.dumps(value))
        self._pickler.clear_memo()

    def stage(self) -> bytes:
        return stage_bytes(self._buffer.getvalue(), self._context)


def unpickle_values(data: bytes) -> list[Any]:
    """Return the values that a task pickled."""
    return next(read_values(Path(), StagedOutput(len(data), data), sys.maxsize), [])


def read_values(root: Path, output: StagedOutput, max_chunk: int) -> Iterator[list[Any]]:
    """Yield the values of a staged output in order, in lists of at most this length."""
    if output.name:
        check_content(output.path(root), output.size, output.crc)
    with output.path(root).open("rb") if output.name else io.BytesIO(output.data) as stream:
        values: list[Any] = []
        while stream.tell() < output.size:
            values.append(pickle.load(stream))
            if len(values) == max_chunk:
                yield values
                values = []
        if values:
            yield values
