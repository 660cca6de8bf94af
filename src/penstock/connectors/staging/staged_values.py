"""Stages the values themselves, for sinks that run on the driver.

Values of a declared type are encoded by their serializer, each after a mark and its length; the
signature of the type comes first, so that a program whose type has changed can still read them. All
others are pickled. A pickle begins with another byte than the marks, so values that older versions
pickled can be read, too. For a declared type that runs no code: only classes of plain values are
loaded.
"""
# ruff: noqa: D102 - the contract documents the methods of a writer

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import cloudpickle

from penstock.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from penstock.connectors.contracts.sink import SinkWriter, WriterContext
from penstock.connectors.staging.staged_output import StagedOutput, stage_bytes
from penstock.errors import UnexpectedPickleError
from penstock.storage.durable_files import check_content
from penstock.types.coercion import coercion_for
from penstock.types.serializers import Serializer, serializer_for
from penstock.types.signature import is_pickled, parse_signature, type_signature

_VALUE = b"\x01"
_TYPE = b"\x02"
_LENGTH = struct.Struct(">I")
_PLAIN_CLASSES = {
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    ("penstock.common.row", "_restore"),
    ("penstock.common.row", "RowKind"),
    ("penstock.common.time", "Instant"),
}


class ValuesWriter(SinkWriter):
    """Encodes each value at once, coerced to its type: its producer may change it afterwards."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._buffer = io.BytesIO()
        self._serializer: Serializer | None = None
        if not is_pickled(context.type_info):
            self._serializer = serializer_for(context.type_info)
        self._coerce = coercion_for(context.type_info or PickledBytesTypeInfo())
        self._pickler = pickle.Pickler(self._buffer, pickle.HIGHEST_PROTOCOL)

    def write(self, value: Any) -> None:
        if self._serializer is None:
            self._pickle(self._coerce(value))
            return
        data = self._serializer.encode(value)
        if not self._buffer.tell():
            signature = type_signature(self._serializer.type_info).encode()
            self._buffer.write(_TYPE + _LENGTH.pack(len(signature)) + signature)
        self._buffer.write(_VALUE + _LENGTH.pack(len(data)) + data)

    def stage(self) -> bytes:
        return stage_bytes(self._buffer.getvalue(), self._context)

    def _pickle(self, value: Any) -> None:
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


def decode_values(data: bytes, type_info: TypeInformation | None) -> list[Any]:
    """Return the values that a task has encoded."""
    return next(read_values(Path(), StagedOutput(len(data), data), sys.maxsize, type_info), [])


def read_values(
    root: Path, output: StagedOutput, max_chunk: int, type_info: TypeInformation | None
) -> Iterator[list[Any]]:
    """Yield the values of a staged output in order, in lists of at most this length.

    ``type_info`` is the type that the sink declares now.

    Raises:
        UnexpectedPickleError: there is a pickle that is not a plain value, although a type is
            declared.
    """
    if output.name:
        check_content(output.path(root), output.size, output.crc)
    with output.path(root).open("rb") if output.name else io.BytesIO(output.data) as stream:
        values: list[Any] = []
        for value in _values_in(stream, output.size, type_info):
            values.append(value)
            if len(values) == max_chunk:
                yield values
                values = []
        if values:
            yield values


def _values_in(stream: IO[bytes], end: int, type_info: TypeInformation | None) -> Iterator[Any]:
    decode = serializer_for(type_info).decode
    may_unpickle = is_pickled(type_info)
    while stream.tell() < end:
        mark = stream.read(1)
        if mark not in (_TYPE, _VALUE):
            stream.seek(-1, io.SEEK_CUR)
            unpickler = pickle.Unpickler if may_unpickle else partial(_PlainUnpickler, type_info)
            yield unpickler(stream).load()
            continue
        data = stream.read(_LENGTH.unpack(stream.read(_LENGTH.size))[0])
        if mark == _TYPE:
            written = parse_signature(data.decode())
            if is_pickled(written) and not may_unpickle:
                raise UnexpectedPickleError(type_info)
            decode = serializer_for(written).decode
        else:
            yield decode(data)


class _PlainUnpickler(pickle.Unpickler):
    """Loads what older versions pickled of a declared type, and refuses everything else."""

    def __init__(self, type_info: TypeInformation | None, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._type_info = type_info

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN_CLASSES:
            raise UnexpectedPickleError(self._type_info)
        return super().find_class(module, name)
