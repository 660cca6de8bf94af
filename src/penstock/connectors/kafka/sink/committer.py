"""Commits the records of completed checkpoints to Kafka, in transactions."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest, Committer
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.sink.commit_marker import CommitMarker, group_into_transactions
from penstock.connectors.kafka.sink.committable import (
    KafkaCommittable,
    TransactionalIdentity,
    decode_committable,
)
from penstock.connectors.kafka.sink.transactions import TransactionalProducer
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import (
    ConnectorError,
    KafkaFencedError,
    KafkaUnreachableError,
    LostKafkaMarkerError,
    UnsafeNameError,
)

logger = logging.getLogger("penstock.connectors.kafka")

_REFRESH_SECONDS = 6 * 60 * 60.0
_RETRY_REFRESH_SECONDS = 10 * 60.0
_MAX_TRANSACTION_BYTES = 512 * 1024 * 1024


class OnLostMarker(Enum):
    """What to do with staged records if the marker is lost and they may be committed already."""

    FAIL = "fail"
    SKIP = "skip"
    PUBLISH = "publish"


_Requests = list[tuple[CommitRequest, KafkaCommittable]]


class KafkaCommitter(Committer):
    """Publishes committables in transactions that also move the marker; skips what it covers.

    Staged files are deleted once their records are committed; after a crash in between, the sweep
    deletes them. The producer is reused until something fails.
    """

    def __init__(
        self,
        properties: KafkaProperties,
        identity: TransactionalIdentity,
        staging: StagingDirectory,
        on_lost_marker: OnLostMarker = OnLostMarker.FAIL,
        max_transaction_bytes: int = _MAX_TRANSACTION_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._properties = properties
        self._identity = identity
        self._staging = staging
        self._on_lost_marker = on_lost_marker
        self._max_transaction_bytes = max_transaction_bytes
        self._clock = clock
        self._refresh_at: float | None = None
        self._producer = TransactionalProducer(properties, identity)

    def begin(self, attempt: int) -> None:
        """Fence older attempts and create the marker if there is none.

        Called before the attempt stages anything, with all restored committables committed. So a
        marker that is missing here never existed; one that is missing later was lost.
        """
        self._producer.open()
        if self._producer.marker is None:
            self._producer.publish([], CommitMarker(attempt))

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        by_identity: dict[TransactionalIdentity, _Requests] = {}
        for request in requests:
            try:
                part = self._decode(request.get_committable())
            except UnsafeNameError as error:
                request.signal_failed_with_known_reason(error)
                continue
            by_identity.setdefault(part.identity, []).append((request, part))
        must_wait = False
        for identity, group in by_identity.items():
            if must_wait:
                # Another job's records come before those of this one, so they are committed first.
                for request, _ in group:
                    request.retry_later()
            elif identity == self._identity:
                self._commit(self._producer, group)
            else:
                with contextlib.closing(TransactionalProducer(self._properties, identity)) as other:
                    self._commit(other, group)
            must_wait = any(request.outcome is CommitOutcome.RETRY_LATER for request, _ in group)

    def notify_checkpoint_complete(self) -> None:
        """Rewrite the marker now and then: brokers expire offsets that are not written for days."""
        now = self._clock()
        if self._refresh_at is not None and now < self._refresh_at:
            return
        # While the broker is unreachable this blocks the commits of other sinks: try it rarely.
        self._refresh_at = now + _RETRY_REFRESH_SECONDS
        self._producer.open()
        if self._producer.marker is not None:
            self._producer.publish([], self._producer.marker)
        self._refresh_at = now + _REFRESH_SECONDS

    def sweep(self, keep: Sequence[bytes]) -> None:
        parts = [self._here(self._decode(data)) for data in keep]
        kept = {path for part in parts for path in part.paths}
        self._staging.sweep(kept, {part.upload for part in parts})

    def close(self) -> None:
        self._producer.close()

    def _decode(self, committable: bytes) -> KafkaCommittable:
        part = decode_committable(committable)
        self._directory(part)  # its name is checked before anything is done
        return part

    def _directory(self, part: KafkaCommittable) -> StagingDirectory:
        """Return where the files of a part are.

        This job's directory may have been moved since; another job's is where it was.
        """
        is_own = part.identity == self._identity
        return self._staging if is_own else self._staging.of_other_job(part.root)

    def _here(self, part: KafkaCommittable) -> KafkaCommittable:
        """Return the part with its files in the local directory."""
        return part.moved(self._directory(part).root)

    def _commit(self, producer: TransactionalProducer, requests: _Requests) -> None:
        pending = requests
        try:
            producer.open()
            marker = self._known_marker(producer.marker, [part for _, part in requests])
            pending = [(r, p) for r, p in requests if not marker.covers(p)]
            transactions = group_into_transactions(
                [part for _, part in pending], marker, self._max_transaction_bytes
            )
            if not transactions and marker != producer.marker:
                producer.publish([], marker)
            for request, part in requests:
                if marker.covers(part):
                    request.signal_already_committed()
            self._delete_files([part for _, part in requests if marker.covers(part)])
            for parts in transactions:
                for part in parts:
                    self._fetch_files(part)
                    marker = marker.advanced_past(part)
                blocks = (block for part in parts for block in self._here(part).blocks())
                producer.publish(blocks, marker)
                # A crash before the files are deleted is harmless: the marker covers them.
                pending = [(r, p) for r, p in pending if not marker.covers(p)]
                self._delete_files(parts)
        except KafkaUnreachableError as error:
            logger.warning("Kafka is unreachable, committing records is retried: %s", error)
            for request, _ in pending:
                request.retry_later(error)
        except KafkaFencedError as error:
            for request, _ in pending:
                request.signal_failed_with_unknown_reason(error)
        except ConnectorError as error:
            for request, _ in pending:
                request.signal_failed_with_known_reason(error)

    def _known_marker(
        self, marker: CommitMarker | None, parts: Sequence[KafkaCommittable]
    ) -> CommitMarker:
        """Return a marker that covers every part or not, by the policy where it is lost."""
        ordered = sorted(parts, key=lambda part: part.order)
        known = CommitMarker(ordered[-1].attempt + 1) if marker is None else marker
        unknown = [part for part in ordered if known.covers(part) is None]
        if unknown and self._on_lost_marker is OnLostMarker.FAIL:
            last, records = unknown[-1], sum(part.records for part in unknown)
            raise LostKafkaMarkerError(
                last.identity.group, last.identity.topic, last.checkpoint, records
            )
        if self._on_lost_marker is OnLostMarker.SKIP:
            for part in unknown:
                known = known.advanced_past(part)
        return known

    def _fetch_files(self, part: KafkaCommittable) -> None:
        here = self._here(part)
        self._directory(part).fetch(part.upload, here.files)
        here.check_files()

    def _delete_files(self, parts: Iterable[KafkaCommittable]) -> None:
        # Another job's savepoint may still refer to its files.
        own = [self._here(part) for part in parts if part.identity == self._identity]
        paths = [path for part in own for path in part.paths]
        self._staging.remove(paths, [part.upload for part in own if part.upload])
