"""Sink that brings values back into the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from penstock.connectors.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.deliveries import Deliveries, decode_delivery
from penstock.connectors.pickled_values import PickledValuesWriter, chunks_of_values
from penstock.connectors.pre_commits import PreCommits
from penstock.connectors.sink import (
    PublisherContext,
    Sink,
    SinkCut,
    SinkPublisher,
    SinkWriter,
    WriterContext,
)
from penstock.connectors.staging import load_staged
from penstock.errors import LostReceiverError, LostStagedFileError

__all__ = ["CollectSink"]


Receive = Callable[[list[Any]], None]


class _Receiver:
    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.delivered: set[str] = set()
        """What this program got already, through restarts of the job in its process."""


# Copies of a sink that travel to tasks and back carry only the token; the receiver itself
# lives as long as the sink that the user's program holds.
_receivers: WeakValueDictionary[str, _Receiver] = WeakValueDictionary()


class CollectSink(Sink):
    """Hands values to a function on the driver.

    In a job with checkpoints they come when the checkpoint behind them is completed, each once,
    also if the job is restarted in this process. Without, they come with each published
    micro-batch. ``receive`` gets one list per micro-batch and subtask that wrote something, in
    that order, on a thread of the job. It never leaves this process. Values come in
    the form of their declared type, as they do out of an exchange.
    """

    checks_type = False  # the writer fits every value itself

    def __init__(self, receive: Receive) -> None:
        self._token = uuid4().hex
        self._receiver: _Receiver | None = _Receiver(receive)
        _receivers[self._token] = self._receiver

    def __getstate__(self) -> str:
        return self._token

    def __setstate__(self, token: str) -> None:
        self._token = token
        self._receiver = _receivers.get(token)

    def writer(self, context: WriterContext) -> SinkWriter:
        return PickledValuesWriter(context)

    def publisher(self, context: PublisherContext) -> SinkPublisher:
        receiver = self._receiver_for(context.name)
        if context.checkpointed:
            return _CheckpointedPublisher(Deliveries(context.work_dir, context.attempt))
        return _Publisher(receiver.receive)

    def committer(self, context: CommitterContext) -> Committer:
        deliveries = Deliveries(context.work_dir, context.attempt)
        return _Committer(self._receiver_for(context.name), deliveries)

    def _receiver_for(self, step: str) -> _Receiver:
        if self._receiver is None:
            raise LostReceiverError(step)
        return self._receiver


class _Publisher(SinkPublisher):
    """For jobs without checkpoints."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    def publish(self, staged: Sequence[bytes]) -> None:
        for entry in staged:
            if entry:
                self._receive(_unpickled(load_staged(entry)))


class _CheckpointedPublisher(SinkPublisher):
    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._published: list[bytes] = []
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        self._published.extend(load_staged(entry) for entry in staged if entry)

    def at_barrier(self, checkpoint: int, *, roll_all: bool) -> Callable[[], SinkCut]:
        cut_off, self._published = self._published, []

        def prepare() -> list[bytes]:
            return [self._deliveries.prepare(cut_off)] if cut_off else []

        return self._pre_commits.cut(prepare, list)


class _Committer(Committer):
    def __init__(self, receiver: _Receiver, deliveries: Deliveries) -> None:
        self._receiver = receiver
        self._deliveries = deliveries

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        delivered = self._receiver.delivered | self._deliveries.recorded()
        for request in requests:
            delivery = decode_delivery(request.get_committable())
            if delivery.id in delivered:
                request.signal_already_committed()
            else:
                try:
                    blocks = self._deliveries.load(delivery)
                except LostStagedFileError as error:
                    request.signal_failed_with_known_reason(error)
                    continue
                for block in blocks:
                    self._receiver.receive(_unpickled(block))
                delivered.add(delivery.id)
                self._receiver.delivered.add(delivery.id)
                self._deliveries.record(delivery)
            self._deliveries.forget(delivery)

    def sweep(self, keep: Sequence[bytes]) -> None:
        self._deliveries.sweep(list(map(decode_delivery, keep)))


def _unpickled(data: bytes) -> list[Any]:
    return next(chunks_of_values(io.BytesIO(data), len(data), sys.maxsize), [])
