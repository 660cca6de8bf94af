"""Sink that brings values back into the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import cloudpickle

from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging import load_staged, stage_bytes
from penstock.errors import LostReceiverError

__all__ = ["CollectSink"]


class _Receiver:
    def __init__(self, receive: Callable[[list[Any]], None]) -> None:
        self.receive = receive


# Copies of a sink that travel to tasks and back carry only the token; the receiver itself
# lives as long as the sink that the user's program holds.
_receivers: WeakValueDictionary[str, _Receiver] = WeakValueDictionary()


class CollectSink(Sink):
    """Hands the values of each published micro-batch to a function on the driver.

    ``receive`` gets one list per subtask that wrote something, in subtask order, on the
    publisher's thread. It never leaves this process.
    """

    def __init__(self, receive: Callable[[list[Any]], None]) -> None:
        self._token = uuid4().hex
        self._receiver: _Receiver | None = _Receiver(receive)
        _receivers[self._token] = self._receiver

    def __getstate__(self) -> str:
        return self._token

    def __setstate__(self, token: str) -> None:
        self._token = token
        self._receiver = _receivers.get(token)

    def writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        if self._receiver is None:
            raise LostReceiverError(context.name)
        return _Publisher(self._receiver.receive)


class _Writer(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._values: list[Any] = []

    def write(self, value: Any) -> None:
        self._values.append(value)

    def stage(self) -> bytes:
        if not self._values:
            return b""
        return stage_bytes(cloudpickle.dumps(self._values), self._context)


class _Publisher(SinkPublisher):
    def __init__(self, receive: Callable[[list[Any]], None]) -> None:
        self._receive = receive

    def publish(self, staged: Sequence[bytes]) -> None:
        for entry in staged:
            if entry:
                self._receive(pickle.loads(load_staged(entry)))
