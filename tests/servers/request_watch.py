"""Finds requests of one kind, and their answers, in the bytes of a connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

KAFKA_END_TXN = 26
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")


class RequestWatch(Protocol):
    """Sees all bytes of one connection and finds requests of one kind and their answers.

    Two threads call `on_request` and `on_answer`, but never for an answer before its request.
    """

    def on_request(self, data: bytes) -> int:
        """Process the next bytes of the client; return how many watched requests end in them."""
        ...

    def on_answer(self, data: bytes) -> bool:
        """Process the next bytes of the server; True once the last watched request is answered."""
        ...


Watching = Callable[[], RequestWatch]


def request_with(needle: bytes) -> Watching:
    """Watch for requests that contain these bytes, for example SQL in requests to PostgreSQL.

    The next bytes of the server count as the answer.
    """
    return lambda: _BytesWatch(needle)


def kafka_request(api_key: int) -> Watching:
    """Watch for Kafka requests with an API key."""
    return lambda: _KafkaWatch(api_key)


class _BytesWatch:
    def __init__(self, needle: bytes) -> None:
        self._needle = needle
        self._kept = b""

    def on_request(self, data: bytes) -> int:
        text = self._kept + data
        # Shorter than the needle by one byte, so that nothing is counted twice.
        self._kept = text[max(0, len(text) - len(self._needle) + 1) :]
        return text.count(self._needle)

    def on_answer(self, data: bytes) -> bool:
        return True


class _KafkaWatch:
    """Splits both directions into frames: a length, then a header with the correlation id."""

    def __init__(self, api_key: int) -> None:
        self._api_key = api_key
        self._requests = _Frames(_REQUEST.size)
        self._answers = _Frames(_ANSWER.size)
        self._correlation: int | None = None

    def on_request(self, data: bytes) -> int:
        requests = [_REQUEST.unpack(head) for head in self._requests.feed(data)]
        watched = [correlation for api_key, _, correlation in requests if api_key == self._api_key]
        self._correlation = watched[-1] if watched else self._correlation
        return len(watched)

    def on_answer(self, data: bytes) -> bool:
        answers = [_ANSWER.unpack(head)[0] for head in self._answers.feed(data)]
        return self._correlation in answers


class _Frames:
    """Splits a stream of bytes into frames."""

    def __init__(self, head: int) -> None:
        self._head = head
        self._begun = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the head of every frame that ends in `data`."""
        self._begun += data
        while len(self._begun) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._begun)[0]
            if len(self._begun) < end:
                return
            yield bytes(self._begun[_LENGTH.size : _LENGTH.size + self._head])
            del self._begun[:end]
