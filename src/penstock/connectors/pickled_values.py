"""Values on their way from a task to the driver as one pickle behind the other."""
# ruff: noqa: D102 - the contract documents the methods of a writer

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any, BinaryIO

import cloudpickle

from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.staging import stage_bytes
from penstock.state.fitting import fit_for

__all__ = ["PickledValuesWriter", "chunks_of_values"]


class PickledValuesWriter(SinkWriter):
    """Pickles each value at once, in the form of its type: its maker may go on changing it."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._fit = fit_for(context.type_info or PickledBytesTypeInfo())
        self._buffer = io.BytesIO()
        self._pickler = pickle.Pickler(self._buffer, pickle.HIGHEST_PROTOCOL)

    def write(self, value: Any) -> None:
        value = self._fit(value)
        begin = self._buffer.tell()
        try:
            self._pickler.dump(value)
        except (pickle.PicklingError, AttributeError, TypeError):
            # Classes of the user's main program have no name in a task; cloudpickle spells
            # them out, and takes too long to be asked first.
            self._buffer.seek(begin)
            self._buffer.truncate()
            self._buffer.write(cloudpickle.dumps(value))
        self._pickler.clear_memo()

    def stage(self) -> bytes:
        return stage_bytes(self._buffer.getvalue(), self._context)


def chunks_of_values(stream: BinaryIO, size: int, largest_chunk: int) -> Iterator[list[Any]]:
    """Give back the values in the first ``size`` bytes of a stream, in lists of some length."""
    values: list[Any] = []
    while stream.tell() < size:
        values.append(pickle.load(stream))
        if len(values) == largest_chunk:
            yield values
            values = []
    if values:
        yield values
