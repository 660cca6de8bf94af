"""What a cutting proxy looks for among the bytes of one connection."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

__all__ = ["KAFKA_END_TXN", "RequestWatch", "Watching", "kafka_request", "request_with"]

KAFKA_END_TXN = 26
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")


class RequestWatch(Protocol):
    """Sees all bytes of one connection and finds one kind of request and the answer to it.

    `asked` and `answered` are called by two threads, but never for an answer before its request.
    """

    def asked(self, data: bytes) -> int:
        """Take the next bytes from the client; return how many watched requests end in them."""
        ...

    def answered(self, data: bytes) -> bool:
        """Take the next bytes from the server; true once the last watched request is answered."""
        ...


Watching = Callable[[], RequestWatch]


def request_with(needle: bytes) -> Watching:
    """Watch for requests that hold these bytes, as PostgreSQL's hold their SQL.

    The bytes that arrive next from the server count as the answer.
    """
    return lambda: _BytesWatch(needle)


def kafka_request(api_key: int) -> Watching:
    """Watch for Kafka requests of one kind, by the number its protocol gives them."""
    return lambda: _KafkaWatch(api_key)


class _BytesWatch:
    def __init__(self, needle: bytes) -> None:
        self._needle = needle
        self._kept = b""

    def asked(self, data: bytes) -> int:
        text = self._kept + data
        # Too short to hold the needle once more, long enough to hold all but its end.
        self._kept = text[max(0, len(text) - len(self._needle) + 1) :]
        return text.count(self._needle)

    def answered(self, data: bytes) -> bool:
        return True


class _KafkaWatch:
    """Cuts both directions into frames: a length, then a header with the correlation id."""

    def __init__(self, api_key: int) -> None:
        self._api_key = api_key
        self._asked = _Frames(_REQUEST.size)
        self._answered = _Frames(_ANSWER.size)
        self._correlation: int | None = None

    def asked(self, data: bytes) -> int:
        requests = [_REQUEST.unpack(head) for head in self._asked.feed(data)]
        watched = [correlation for api_key, _, correlation in requests if api_key == self._api_key]
        self._correlation = watched[-1] if watched else self._correlation
        return len(watched)

    def answered(self, data: bytes) -> bool:
        answers = [_ANSWER.unpack(head)[0] for head in self._answered.feed(data)]
        return self._correlation in answers


class _Frames:
    """Finds the frames in a stream of bytes, keeping of each only how it begins."""

    def __init__(self, head: int) -> None:
        self._head = head
        self._begun = bytearray()
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the head of every frame that ends in `data`."""
        at = 0
        while at < len(data):
            wanted = _LENGTH.size + self._head - len(self._begun)
            if wanted > 0:
                taken = data[at : at + wanted]
                self._begun += taken
                at += len(taken)
                if len(taken) < wanted:
                    return
                self._missing = _LENGTH.unpack_from(self._begun)[0] - self._head
            step = min(self._missing, len(data) - at)
            at += step
            self._missing -= step
            if self._missing > 0:
                return
            head = bytes(self._begun[_LENGTH.size :])
            self._begun.clear()
            yield head
