"""Sink that brings values back into the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import cloudpickle

from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging import load_staged, stage_bytes
from penstock.errors import LostReceiverError
from penstock.state.fitting import fit_for

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
    publisher's thread. It never leaves this process. Values come in the form of their declared
    type, as they do out of an exchange.
    """

    checks_type = False  # the writer fits every value itself

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
    """Pickles each value at once, since its maker may go on changing it."""

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


class _Publisher(SinkPublisher):
    def __init__(self, receive: Callable[[list[Any]], None]) -> None:
        self._receive = receive

    def publish(self, staged: Sequence[bytes]) -> None:
        for entry in staged:
            if entry:
                self._receive(list(_unpickled(load_staged(entry))))


def _unpickled(data: bytes) -> Iterator[Any]:
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        yield pickle.load(stream)
