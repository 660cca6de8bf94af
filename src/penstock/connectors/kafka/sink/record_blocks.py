"""The format of staged records: blocks of messages of one topic, each with a checksum."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from struct import Struct
from typing import BinaryIO

import msgspec

from penstock.connectors.kafka.sink.serialization import Message
from penstock.errors import CorruptStagedRecordsError

_HEADER = Struct(">II")
_MESSAGES_PER_BLOCK = 2000
_BYTES_PER_BLOCK = 256 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class RecordBlockBuffer:
    """Collects messages by topic, and emits encoded blocks as they fill up.

    Messages of one topic stay in order.
    """

    def __init__(self, emit: Callable[[bytes], None]) -> None:
        self._emit = emit
        self._messages: defaultdict[str, list[Message]] = defaultdict(list)
        self._sizes: defaultdict[str, int] = defaultdict(int)

    def add(self, topic: str, message: Message, size: int) -> None:
        """Add a message whose key and value have this many bytes."""
        messages = self._messages[topic]
        messages.append(message)
        self._sizes[topic] += size
        if len(messages) >= _MESSAGES_PER_BLOCK or self._sizes[topic] >= _BYTES_PER_BLOCK:
            self._emit_block(topic)

    def flush(self) -> None:
        """Emit what is left."""
        for topic in list(self._messages):
            self._emit_block(topic)

    def _emit_block(self, topic: str) -> None:
        block = _encode((topic, self._messages.pop(topic)))
        del self._sizes[topic]
        self._emit(_HEADER.pack(len(block), zlib.crc32(block)) + block)


def read_blocks(file: BinaryIO, place: str) -> Iterator[tuple[str, list[Message]]]:
    """Yield topics and messages, in order.

    Raises:
        CorruptStagedRecordsError: if a block is truncated or its checksum is wrong.
    """
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size:
            raise CorruptStagedRecordsError(place, "a block ends in its header")
        length, checksum = _HEADER.unpack(header)
        block = file.read(length)
        if len(block) != length or zlib.crc32(block) != checksum:
            raise CorruptStagedRecordsError(place, "the checksum of a block is wrong")
        topic, messages = _decode(block)
        yield topic, messages
