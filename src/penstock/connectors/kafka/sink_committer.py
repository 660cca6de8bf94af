"""Publishing what completed checkpoints owe to Kafka."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from penstock.connectors.committer import CommitOutcome, CommitRequest, Committer
from penstock.connectors.kafka.client import KafkaProperties
from penstock.connectors.kafka.marker import Marker, transactions_of
from penstock.connectors.kafka.serialization import Message
from penstock.connectors.kafka.staged_part import Account, StagedPart, decode_part
from penstock.connectors.kafka.transactions import MarkedTransactions
from penstock.connectors.staging_area import StagingArea
from penstock.errors import (
    ConnectorError,
    KafkaFencedError,
    KafkaUnreachableError,
    LostKafkaMarkerError,
)

__all__ = ["KafkaCommitter", "OnLostMarker"]

logger = logging.getLogger("penstock.connectors.kafka")

_REFRESH_SECONDS = 6 * 60 * 60.0
_AFTER_FAILED_REFRESH_SECONDS = 10 * 60.0
_LARGEST_TRANSACTION = 512 * 1024 * 1024


class OnLostMarker(Enum):
    """What to do with staged records when nobody can tell whether they are published."""

    FAIL = "fail"
    SKIP = "skip"
    PUBLISH = "publish"


Asked = list[tuple[CommitRequest, StagedPart]]


class KafkaCommitter(Committer):
    """Publishes parts in transactions that move a marker too, and skips what the marker covers.

    Staged files go once their records are known to be published; a crash before that leaves them
    to the sweep. The producer stays while nothing fails.
    """

    def __init__(
        self,
        properties: KafkaProperties,
        account: Account,
        area: StagingArea,
        on_lost_marker: OnLostMarker = OnLostMarker.FAIL,
        largest_transaction: int = _LARGEST_TRANSACTION,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._properties = properties
        self._account = account
        self._area = area
        self._on_lost_marker = on_lost_marker
        self._largest_transaction = largest_transaction
        self._clock = clock
        self._refresh_at: float | None = None
        self._own = MarkedTransactions(properties, account)

    def begin(self, attempt: int) -> None:
        """End what older attempts have begun, and see to it that there is a marker.

        Called before the attempt stages anything. All that was restored is committed by then, so a
        marker that is missing here never mattered; one that is missing later was lost.
        """
        self._own.open()
        if self._own.marker is None:
            self._own.run([], Marker(attempt))

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        by_account: dict[Account, Asked] = {}
        for request in requests:
            part = decode_part(request.get_committable())
            by_account.setdefault(part.account, []).append((request, part))
        waits = False
        for account, asked in by_account.items():
            if waits:
                # What another job staged was there before anything of this one.
                for request, _ in asked:
                    request.retry_later()
            elif account == self._account:
                self._commit(self._own, asked)
            else:
                with contextlib.closing(MarkedTransactions(self._properties, account)) as others:
                    self._commit(others, asked)
            waits = any(request.outcome is CommitOutcome.RETRY_LATER for request, _ in asked)

    def settled(self) -> None:
        """Write the marker again: brokers forget one that nobody has written for days."""
        now = self._clock()
        if self._refresh_at is not None and now < self._refresh_at:
            return
        # A broker that is away keeps the commits of other sinks waiting, so not every time.
        self._refresh_at = now + _AFTER_FAILED_REFRESH_SECONDS
        self._own.open()
        if self._own.marker is not None:
            self._own.run([], self._own.marker)
        self._refresh_at = now + _REFRESH_SECONDS

    def sweep(self, keep: Sequence[bytes]) -> None:
        kept = map(decode_part, keep)
        self._area.sweep({path for part in kept for path in part.paths(self._root(part))})

    def close(self) -> None:
        self._own.close()

    def _commit(self, transactions: MarkedTransactions, asked: Asked) -> None:
        unsettled = list(asked)
        try:
            transactions.open()
            marker = self._settled(transactions.marker, [part for _, part in asked])
            unsettled = [(r, p) for r, p in asked if not marker.covers(p)]
            batches = transactions_of(
                [part for _, part in unsettled], marker, self._largest_transaction
            )
            if not batches and marker != transactions.marker:
                transactions.run([], marker)
            for request, part in asked:
                if marker.covers(part):
                    request.signal_already_committed()
                    self._forget(part)
            for batch in batches:
                for part in batch:
                    part.check(self._root(part))
                    marker = marker.behind(part)
                transactions.run(self._blocks(batch), marker)
                unsettled = [(r, p) for r, p in unsettled if not marker.covers(p)]
                for part in batch:
                    self._forget(part)
        except KafkaUnreachableError as error:
            logger.warning("records wait to be published: %s", error)
            for request, _ in unsettled:
                request.retry_later(error)
        except KafkaFencedError as error:
            for request, _ in unsettled:
                request.signal_failed_with_unknown_reason(error)
        except ConnectorError as error:
            for request, _ in unsettled:
                request.signal_failed_with_known_reason(error)

    def _settled(self, marker: Marker | None, parts: Sequence[StagedPart]) -> Marker:
        """Return the marker with what the user says about parts of which it tells nothing."""
        ordered = sorted(parts, key=lambda part: (part.attempt, part.checkpoint, part.part))
        known = Marker(ordered[-1].attempt + 1) if marker is None else marker
        unknown = [part for part in ordered if known.covers(part) is None]
        if unknown and self._on_lost_marker is OnLostMarker.FAIL:
            account, records = unknown[-1].account, sum(part.records for part in unknown)
            raise LostKafkaMarkerError(
                account.group, account.topic, unknown[-1].checkpoint, records
            )
        if self._on_lost_marker is OnLostMarker.SKIP:
            for part in unknown:
                known = known.behind(part)
        return known

    def _blocks(self, parts: Sequence[StagedPart]) -> Iterator[tuple[str, list[Message]]]:
        for part in parts:
            yield from part.blocks(self._root(part))

    def _root(self, part: StagedPart) -> Path | None:
        # The directory of a job may have been moved since; another job's is where it said.
        return self._area.root if part.account == self._account else None

    def _forget(self, part: StagedPart) -> None:
        if part.account != self._account:
            return  # the files are that job's, which may have no other way to tell what was in them
        for path in part.paths(self._root(part)):
            with contextlib.suppress(OSError):
                path.unlink()
