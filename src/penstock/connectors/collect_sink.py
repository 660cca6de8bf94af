"""Sink that hands values to a function in the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec

from penstock.common.contained_paths import path_inside
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts import sink
from penstock.connectors.contracts.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import ImmediatePublisher, load_staged
from penstock.connectors.staging.staged_values import ValuesWriter, decode_values
from penstock.errors import ConnectorError, LostReceiverError
from penstock.ids import is_no_later
from penstock.storage import durable_files
from penstock.types.signature import is_pickled

_MAX_INLINE_BYTES = 60 * 1024
_FILE = ".delivery"
_RECORD = ".delivered"
_MAX_FORGOTTEN = 1000
"""After how many forgotten deliveries a record is written anew without them."""


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

    def unpickles(self, type_info: TypeInformation | None) -> bool:
        return is_pickled(type_info)

    def writer(self, context: sink.WriterContext) -> sink.SinkWriter:
        return ValuesWriter(context)

    def publisher(self, context: sink.PublisherContext) -> sink.SinkPublisher:
        receiver = self._receiver_for(context.name)
        if context.checkpointed:
            return _CheckpointedPublisher(Deliveries(context.work_dir, context.attempt))
        return ImmediatePublisher(
            lambda data: receiver.receive(decode_values(data, context.type_info))
        )

    def committer(self, context: CommitterContext) -> Committer:
        deliveries = Deliveries(context.work_dir, context.attempt)
        return _Committer(self._receiver_for(context.name), deliveries, context.type_info)

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
    def __init__(
        self, receiver: _Receiver, deliveries: Deliveries, type_info: TypeInformation | None
    ) -> None:
        self._receiver = receiver
        self._deliveries = deliveries
        self._type_info = type_info

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        delivered, recorded = self._receiver.delivered, self._deliveries.recorded()
        for request in requests:
            delivery = decode_delivery(request.get_committable())
            if delivery.id in delivered or delivery.id in recorded:
                request.signal_already_committed()
            else:
                try:
                    blocks = self._deliveries.load(delivery)
                except ConnectorError as error:
                    request.signal_failed_with_known_reason(error)
                    continue
                for block in blocks:
                    self._receiver.receive(decode_values(block, self._type_info))
                # Recorded in memory first: a crash before the durable record ends this program,
                # and with it everything it was handed.
                delivered.add(delivery.id)
                self._deliveries.record(delivery)
            self._deliveries.remove(delivery)

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        # No checkpoint that holds them can be restored: they are never committed again.
        gone = _ids(discarded) - _ids(retained)
        self._receiver.delivered -= gone
        self._deliveries.forget(gone)

    def sweep(self, keep: Sequence[bytes]) -> None:
        self._deliveries.sweep(_ids(keep))


def _ids(committables: Iterable[bytes]) -> set[str]:
    return {decode_delivery(data).id for data in committables}


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """A committable: blocks of encoded values, inline or in a file of this size and CRC-32.

    The checksum is None if an older version wrote the file.
    """

    id: str
    inline: list[bytes] | None
    size: int
    crc: int | None = None


decode_delivery = msgspec.msgpack.Decoder(Delivery).decode
_decode_blocks = msgspec.msgpack.Decoder(list[bytes]).decode


class Deliveries:
    """The deliveries of one step in its durable directory, as seen by one attempt."""

    def __init__(self, work_dir: Path, attempt: str) -> None:
        self._dir = work_dir
        self._attempt = attempt
        self._recorded: set[str] | None = None
        self._forgotten = 0

    def prepare(self, blocks: Sequence[bytes]) -> bytes:
        """Make blocks durable, and return the committable that stands for them."""
        data = msgspec.msgpack.encode(list(blocks))
        name = f"{self._attempt}-{uuid4().hex}"
        if len(data) <= _MAX_INLINE_BYTES:
            return msgspec.msgpack.encode(Delivery(name, list(blocks), len(data)))
        durable_files.make_directory(self._dir)
        durable_files.write_file(self._path(name), data)
        durable_files.sync_directory(self._dir)
        return msgspec.msgpack.encode(Delivery(name, None, len(data), zlib.crc32(data)))

    def load(self, delivery: Delivery) -> list[bytes]:
        """Return the blocks.

        Raises:
            ConnectorError: the file is missing or damaged, or its name is not one of a delivery.
        """
        if delivery.inline is not None:
            return delivery.inline
        path = self._path(delivery.id)
        durable_files.check_content(path, delivery.size, delivery.crc)
        return _decode_blocks(path.read_bytes())

    def recorded(self) -> set[str]:
        """Return the ids of deliveries that this program or an earlier one was handed.

        They are read only once: afterwards only this attempt adds to them.
        """
        if self._recorded is None:
            self._recorded = set().union(*map(_ids_in, self._dir.glob(f"*{_RECORD}")))
        return self._recorded

    def record(self, delivery: Delivery) -> None:
        """Record durably that a delivery was handed over."""
        durable_files.make_directory(self._dir)
        # It begins with a line feed, because a power loss may have left half a line.
        line = f"\n{delivery.id}\n".encode()
        durable_files.write_file(self._record_path, line, "ab")
        self.recorded().add(delivery.id)

    def forget(self, ids: set[str]) -> None:
        """Forget deliveries that are never committed again.

        The record on disk is written anew only now and then, because that takes time.
        """
        recorded = self.recorded()
        self._forgotten += len(recorded & ids)
        recorded -= ids
        if self._forgotten >= _MAX_FORGOTTEN:
            # It may then hold ids of earlier attempts too, which is harmless.
            durable_files.replace_file(self._record_path, "\n".join(sorted(recorded)).encode())
            self._forgotten = 0

    def remove(self, delivery: Delivery) -> None:
        """Remove the file of a delivery that was handed over."""
        self._path(delivery.id).unlink(missing_ok=True)

    def sweep(self, ids: set[str]) -> None:
        """Remove files and records of all deliveries but these; those of later attempts stay."""
        for path in self._dir.glob(f"*{_FILE}"):
            if path.stem not in ids and self._may_remove(path.stem.partition("-")[0]):
                path.unlink(missing_ok=True)
        for path in self._dir.glob(f"*{_RECORD}"):
            if self._may_remove(path.stem):
                _keep_only(path, ids)
        self._recorded = None

    def _may_remove(self, attempt: str) -> bool:
        return is_no_later(attempt, self._attempt)

    @property
    def _record_path(self) -> Path:
        return self._dir / f"{self._attempt}{_RECORD}"

    def _path(self, name: str) -> Path:
        return path_inside(self._dir, f"{name}{_FILE}")


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
