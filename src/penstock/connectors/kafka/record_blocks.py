"""Records on their way to Kafka, as bytes: blocks of messages of one topic, each with its proof."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import BinaryIO

import msgspec

from penstock.connectors.kafka.serialization import Message

__all__ = ["BlockBuffer", "DamagedBlocksError", "read_blocks"]

_HEADER = Struct(">II")
_MESSAGES_PER_BLOCK = 2000
_BYTES_PER_BLOCK = 256 * 1024

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class DamagedBlocksError(ValueError):
    """What is read here is not what was written."""


class BlockBuffer:
    """Collects messages by topic, and hands out blocks of bytes as they become full.

    Messages of one topic stay in their order.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._messages: dict[str, list[Message]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, topic: str, message: Message, size: int) -> None:
        """Take a message with this many bytes in its key and value."""
        messages = self._messages.get(topic)
        if messages is None:
            messages = self._messages[topic] = []
            self._sizes[topic] = 0
        messages.append(message)
        self._sizes[topic] += size
        if len(messages) >= _MESSAGES_PER_BLOCK or self._sizes[topic] >= _BYTES_PER_BLOCK:
            self._end(topic)

    def end(self) -> None:
        """Hand out what is left."""
        for topic in list(self._messages):
            self._end(topic)

    def _end(self, topic: str) -> None:
        block = _encode((topic, self._messages.pop(topic)))
        del self._sizes[topic]
        self._take(_HEADER.pack(len(block), zlib.crc32(block)) + block)


def read_blocks(file: BinaryIO) -> Iterator[tuple[str, list[Message]]]:
    """Give back topics and messages, in order; raises `DamagedBlocksError`."""
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size:
            message = "a block ends in its header"
            raise DamagedBlocksError(message)
        length, checksum = _HEADER.unpack(header)
        block = file.read(length)
        if len(block) != length or zlib.crc32(block) != checksum:
            message = "the checksum of a block is wrong"
            raise DamagedBlocksError(message)
        topic, messages = _decode(block)
        yield topic, messages
