"""Sink that hands values to a function in the program that started the job."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec

from penstock.common.storage_url import Location
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts import sink
from penstock.connectors.contracts.committer import CommitRequest, Committer, CommitterContext
from penstock.connectors.staging.pre_commits import PreCommits
from penstock.connectors.staging.staged_output import ImmediatePublisher, load_staged
from penstock.connectors.staging.staged_values import ValuesWriter, decode_values
from penstock.errors import (
    ConnectorError,
    CorruptStagedRecordsError,
    LostReceiverError,
    LostStagedFileError,
    UnsafeNameError,
)
from penstock.ids import is_no_later
from penstock.storage import durable_files
from penstock.storage.storages import storage_at
from penstock.types.signature import is_pickled

_MAX_INLINE_BYTES = 60 * 1024
_FILE = ".delivery"
_RECORD = ".delivered"
_MAX_FORGOTTEN = 1000
"""After how many forgotten deliveries a record is written anew without them."""
_MAX_FORGOTTEN_IN_STORE = 100
"""After how many forgotten deliveries their records are deleted from a store."""
_ID = re.compile(r"[A-Za-z0-9_.-]+")


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
            place = context.store or context.work_dir
            return _CheckpointedPublisher(Deliveries(place, context.attempt), context.staging_dir)
        return ImmediatePublisher(
            context, lambda data: receiver.receive(decode_values(data, context.type_info))
        )

    def committer(self, context: CommitterContext) -> Committer:
        deliveries = Deliveries(context.store or context.work_dir, context.attempt)
        return _Committer(self._receiver_for(context.name), deliveries, context.type_info)

    def _receiver_for(self, step: str) -> _Receiver:
        if self._receiver is None:
            raise LostReceiverError(step)
        return self._receiver


class _CheckpointedPublisher(sink.SinkPublisher):
    def __init__(self, deliveries: Deliveries, staging_dir: Path) -> None:
        self._deliveries = deliveries
        self._staging_dir = staging_dir
        self._published: list[bytes] = []
        self._pre_commits = PreCommits()

    def publish(self, staged: Sequence[bytes]) -> None:
        self._published.extend(load_staged(entry, self._staging_dir) for entry in staged if entry)

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
        handed_over: list[Delivery] = []
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
            handed_over.append(delivery)
        self._deliveries.remove(handed_over)

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
    """The deliveries of one step in its durable place, as seen by one attempt.

    In a directory each attempt appends to one record of what was handed over. Nothing can be
    appended to a file in a store: there each delivery has a record, whose name holds its id.
    """

    def __init__(self, place: Location, attempt: str) -> None:
        self._place = place
        self._storage = storage_at(place)
        self._attempt = attempt
        self._recorded: set[str] | None = None
        self._forgotten: set[str] = set()

    def prepare(self, blocks: Sequence[bytes]) -> bytes:
        """Make blocks durable, and return the committable that stands for them."""
        data = msgspec.msgpack.encode(list(blocks))
        name = f"{self._attempt}-{uuid4().hex}"
        if len(data) <= _MAX_INLINE_BYTES:
            return msgspec.msgpack.encode(Delivery(name, list(blocks), len(data)))
        if isinstance(self._place, Path):
            durable_files.make_directory(self._place)
            durable_files.write_file(self._place / _file(name), data)
            durable_files.sync_directory(self._place)
        else:
            self._storage.write(_file(name), [data])
        return msgspec.msgpack.encode(Delivery(name, None, len(data), zlib.crc32(data)))

    def load(self, delivery: Delivery) -> list[bytes]:
        """Return the blocks.

        Raises:
            ConnectorError: the file is missing or damaged, or its name is not one of a delivery.
        """
        if delivery.inline is not None:
            return delivery.inline
        path = _file(delivery.id)
        where = self._storage.location(path)
        try:
            data = self._storage.read(path)
        except FileNotFoundError:
            data = b""
        if len(data) != delivery.size:
            raise LostStagedFileError(where, delivery.size, len(data))
        if delivery.crc is not None and (found := zlib.crc32(data)) != delivery.crc:
            reason = f"its checksum is {found:08x}, not {delivery.crc:08x}"
            raise CorruptStagedRecordsError(where, reason)
        return _decode_blocks(data)

    def recorded(self) -> set[str]:
        """Return the ids of deliveries that this program or an earlier one was handed.

        They are read only once: afterwards only this attempt adds to them.
        """
        if self._recorded is None:
            self._recorded = set().union(*map(self._ids_in, self._records()))
        return self._recorded

    def record(self, delivery: Delivery) -> None:
        """Record durably that a delivery was handed over."""
        if isinstance(self._place, Path):
            durable_files.make_directory(self._place)
            # It begins with a line feed, because a power loss may have left half a line.
            line = f"\n{delivery.id}\n".encode()
            durable_files.write_file(self._place / self._record, line, "ab")
        else:
            self._storage.replace(self._record_of(delivery.id), delivery.id.encode())
        self.recorded().add(delivery.id)

    def forget(self, ids: set[str]) -> None:
        """Forget deliveries that are never committed again.

        Their records go only now and then, because that takes time.
        """
        recorded = self.recorded()
        self._forgotten |= recorded & ids
        recorded -= ids
        if isinstance(self._place, Path):
            if len(self._forgotten) >= _MAX_FORGOTTEN:
                # It may then hold ids of earlier attempts too, which is harmless.
                self._storage.replace(self._record, "\n".join(sorted(recorded)).encode())
                self._forgotten.clear()
        elif len(self._forgotten) >= _MAX_FORGOTTEN_IN_STORE:
            self._storage.delete_all(map(self._record_of, sorted(self._forgotten)))
            self._forgotten.clear()

    def remove(self, deliveries: Iterable[Delivery]) -> None:
        """Remove the files of deliveries that were handed over."""
        self._storage.delete_all(_file(one.id) for one in deliveries if one.inline is None)

    def sweep(self, ids: set[str]) -> None:
        """Remove files and records of all deliveries but these; those of later attempts stay."""
        names = [name for name in self._storage.children("") if self._may_remove(name)]
        self._storage.delete_all(
            name for name in names if name.endswith(_FILE) and name.removesuffix(_FILE) not in ids
        )
        unneeded = []
        for name in (name for name in names if name.endswith(_RECORD)):
            found = self._ids_in(name)
            still = sorted(found & ids)
            if not still:
                unneeded.append(name)
            elif len(still) < len(found):
                self._storage.replace(name, "\n".join(still).encode())
        self._storage.delete_all(unneeded)
        self._recorded = None

    def _may_remove(self, name: str) -> bool:
        return is_no_later(re.split("[-.]", name)[0], self._attempt)

    def _records(self) -> list[str]:
        return [name for name in self._storage.children("") if name.endswith(_RECORD)]

    def _ids_in(self, record: str) -> set[str]:
        _, _, delivery = record.removesuffix(_RECORD).partition("-")
        if delivery:
            return {delivery}
        # A driver that sweeps may have removed it since it was listed.
        with suppress(FileNotFoundError):
            return set(self._storage.read(record).decode().split())
        return set()

    @property
    def _record(self) -> str:
        return f"{self._attempt}{_RECORD}"

    def _record_of(self, delivery: str) -> str:
        return f"{self._attempt}-{_name(delivery)}{_RECORD}"


def _file(delivery: str) -> str:
    return f"{_name(delivery)}{_FILE}"


def _name(delivery: str) -> str:
    if not _ID.fullmatch(delivery):
        raise UnsafeNameError(delivery, "the deliveries of a sink")
    return delivery
