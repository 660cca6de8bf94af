"""The task's half of a Kafka sink that promises exactly once: records are staged."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from typing import Any, BinaryIO

from penstock.connectors.kafka.record_blocks import BlockBuffer
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.staged_part import Piece, encode
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.staging_area import StagingArea
from penstock.errors import KafkaRecordError

__all__ = ["StagingWriter"]

_LARGEST_INLINE = 60 * 1024
_MESSAGE_OVERHEAD = 36
_HEADER_OVERHEAD = 10
"""At most so much the client adds before it compares with the limit; it says so nowhere."""


class StagingWriter(SinkWriter):
    """Serializes records: few of them travel with the acknowledgement, more lie in a file.

    A message that is too large is refused here, where it can still be told from which record it
    came: what a checkpoint holds must be publishable.
    """

    def __init__(
        self,
        context: WriterContext,
        area: StagingArea,
        schema: KafkaRecordSerializationSchema,
        largest_message: int,
    ) -> None:
        self._path = area.piece(context.attempt, context.name, 0)
        self._name = str(self._path.relative_to(area.root))
        self._topic_of = schema.topic_of
        self._encode = schema.encoder()
        self._largest_message = largest_message
        self._buffer = BlockBuffer(self._take)
        self._add = self._buffer.add
        self._inline = bytearray()
        self._file: BinaryIO | None = None
        self._records = 0

    def write(self, value: Any) -> None:
        message = self._encode(value)
        data, key = message["value"], message.get("key")
        size = (len(data) if data else 0) + (len(key) if key else 0) + _MESSAGE_OVERHEAD
        if headers := message.get("headers"):
            size += sum(map(_size_of_header, headers))
        if size > self._largest_message:
            reason = f"it takes {size} bytes and message.max.bytes is {self._largest_message}"
            part = "value"
            raise KafkaRecordError(part, data, reason)
        self._records += 1
        self._add(self._topic_of(value), message, size)

    def stage(self) -> bytes:
        self._buffer.end()
        if self._file is not None:
            self._file.write(self._inline)
            size = self._file.tell()
            self._file.close()
            return encode(Piece(self._name, size, self._records))
        if not self._inline:
            return b""
        return encode(Piece("", len(self._inline), self._records, bytes(self._inline)))

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _take(self, block: bytes) -> None:
        self._inline += block
        if len(self._inline) > _LARGEST_INLINE:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("xb")
            self._file.write(self._inline)
            self._inline.clear()


def _size_of_header(header: tuple[str, bytes | None]) -> int:
    name, data = header
    return len(name.encode()) + (len(data) if data else 0) + _HEADER_OVERHEAD
