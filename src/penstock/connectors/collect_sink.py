"""Sink that hands values to a function in the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec

from penstock.connectors.contracts import sink
from penstock.connectors.contracts.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.staging import durable_files
from penstock.connectors.staging.pickled_values import PickledValuesWriter, unpickle_values
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import ImmediatePublisher, load_staged
from penstock.errors import LostReceiverError, LostStagedFileError
from penstock.ids import is_no_later

_MAX_INLINE_BYTES = 60 * 1024
_FILE = ".delivery"
_RECORD = ".delivered"


Receive = Callable[[list[Any]], None]


class _Receiver:
    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.delivered: set[str] = set()
        """Ids of deliveries this program already has, across restarts of the job in its process."""


# Copies of a sink that are shipped to tasks carry only the token. The receiver itself lives as
# long as the sink that the user's program holds.
_receivers: WeakValueDictionary[str, _Receiver] = WeakValueDictionary()


class CollectSink(sink.Sink):
    """Hands values to a function on the driver.

    In a job with checkpoints they arrive when the next checkpoint completes, each once, also if the
    job is restarted in this process. Without checkpoints they arrive with each published
    micro-batch. ``receive`` gets one list per micro-batch and subtask that wrote values, in this
    order, on a thread of the job. It never leaves this process. Values are coerced to their
    declared type, as they are at an exchange.
    """

    checks_type = False  # the writer coerces every value itself

    def __init__(self, receive: Receive) -> None:
        self._token = uuid4().hex
        self._receiver: _Receiver | None = _Receiver(receive)
        _receivers[self._token] = self._receiver

    def __getstate__(self) -> str:
        return self._token

    def __setstate__(self, token: str) -> None:
        self._token = token
        self._receiver = _receivers.get(token)

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        return PickledValuesWriter(context)

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        receiver = self._receiver_for(context.name)
        if context.checkpointed:
            return _CheckpointedPublisher(Deliveries(context.work_dir, context.attempt))
        return ImmediatePublisher(lambda data: receiver.receive(unpickle_values(data)))

    def committer(self, context: CommitterContext) -> Committer:
        deliveries = Deliveries(context.work_dir, context.attempt)
        return _Committer(self._receiver_for(context.name), deliveries)

    def _receiver_for(self, step: str) -> _Receiver:
        if self._receiver is None:
            raise LostReceiverError(step)
        return self._receiver


class _CheckpointedPublisher(sink.SinkPublisher):
    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._published: list[bytes] = []
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        self._published.extend(load_staged(entry) for entry in staged if entry)

    def at_barrier(self, checkpoint: int, *, flush: bool) -> Callable[[], sink.SinkSnapshot]:
        blocks, self._published = self._published, []

        def prepare() -> list[bytes]:
            return [self._deliveries.prepare(blocks)] if blocks else []

        return self._pre_commits.add(prepare)


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
                    self._receiver.receive(unpickle_values(block))
                # Recorded in memory first: a crash before the durable record ends this program,
                # and with it everything it was handed.
                delivered.add(delivery.id)
                self._receiver.delivered.add(delivery.id)
                self._deliveries.record(delivery)
            self._deliveries.remove(delivery)

    def sweep(self, keep: Sequence[bytes]) -> None:
        self._deliveries.sweep(list(map(decode_delivery, keep)))


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A committable: blocks of pickled values, either inline or in a file of this size."""

    id: str
    inline: list[bytes] | None
    size: int


decode_delivery = msgspec.msgpack.Decoder(Delivery).decode
_decode_blocks = msgspec.msgpack.Decoder(list[bytes]).decode


class Deliveries:
    """The deliveries of one step in its durable directory, as seen by one attempt."""

    def __init__(self, work_dir: Path, attempt: str) -> None:
        self._dir = work_dir
        self._attempt = attempt

    def prepare(self, blocks: Sequence[bytes]) -> bytes:
        """Make blocks durable, and return the committable that stands for them."""
        data = msgspec.msgpack.encode(list(blocks))
        name = f"{self._attempt}-{uuid4().hex}"
        if len(data) <= _MAX_INLINE_BYTES:
            return msgspec.msgpack.encode(Delivery(name, list(blocks), len(data)))
        durable_files.make_directory(self._dir)
        durable_files.write_file(self._path(name), data)
        durable_files.sync_directory(self._dir)
        return msgspec.msgpack.encode(Delivery(name, None, len(data)))

    def load(self, delivery: Delivery) -> list[bytes]:
        """Return the blocks."""
        if delivery.inline is not None:
            return delivery.inline
        path = self._path(delivery.id)
        durable_files.check_size(path, delivery.size)
        return _decode_blocks(path.read_bytes())

    def recorded(self) -> set[str]:
        """Return the ids of deliveries that this program or an earlier one was handed."""
        return set().union(*map(_ids_in, self._dir.glob(f"*{_RECORD}")))

    def record(self, delivery: Delivery) -> None:
        """Record durably that a delivery was handed over."""
        durable_files.make_directory(self._dir)
        # It begins with a line feed, because a power loss may have left half a line.
        line = f"\n{delivery.id}\n".encode()
        durable_files.write_file(self._dir / f"{self._attempt}{_RECORD}", line, "ab")

    def remove(self, delivery: Delivery) -> None:
        """Remove the file of a delivery that was handed over."""
        self._path(delivery.id).unlink(missing_ok=True)

    def sweep(self, keep: Sequence[Delivery]) -> None:
        """Remove files and records of all deliveries except some; those of later attempts stay."""
        ids = {delivery.id for delivery in keep}
        for path in self._dir.glob(f"*{_FILE}"):
            if path.stem not in ids and self._may_remove(path.stem.partition("-")[0]):
                path.unlink(missing_ok=True)
        for path in self._dir.glob(f"*{_RECORD}"):
            if self._may_remove(path.stem):
                _keep_only(path, ids)

    def _may_remove(self, attempt: str) -> bool:
        return is_no_later(attempt, self._attempt)

    def _path(self, name: str) -> Path:
        return self._dir / f"{name}{_FILE}"


def _ids_in(record: Path) -> set[str]:
    # A driver that sweeps may have removed it since it was listed.
    with suppress(FileNotFoundError):
        return set(record.read_text().split())
    return set()


def _keep_only(record: Path, ids: set[str]) -> None:
    still = sorted(_ids_in(record) & ids)
    if still:
        durable_files.replace_file(record, "\n".join(still).encode())
    else:
        record.unlink(missing_ok=True)
