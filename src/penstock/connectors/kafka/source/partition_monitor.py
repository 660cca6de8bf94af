"""Monitors partitions in a background thread: new records, new partitions, deleted ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.source.broker_client import (
    BrokerClient,
    KnownOffsets,
    OffsetCommitter,
    TopicId,
)
from penstock.connectors.kafka.source.offsets_initializer import KafkaOffsetsInitializer, Offsets
from penstock.errors import FencedError, MissingTopicError

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
# Retention deletes segments every few minutes; asking each time would double the requests.
_EARLIEST_OFFSETS_SECONDS = 1.0
_DISCOVERY_RETRY_SECONDS = 1.0
# A broker may not know an existing topic for a moment; a topic taken for deleted starts over.
_DELETED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class AvailableOffsets:
    """The earliest and latest offset of each known partition, when last queried."""

    earliest: Offsets
    latest: Offsets


@dataclass(frozen=True, slots=True)
class DiscoveredPartitions:
    """New partitions with their starting offsets, and their stopping offsets if bounded."""

    start: Offsets
    stop: Offsets
    topics: dict[str, TopicId]


@dataclass(frozen=True, slots=True)
class DeletedPartitions:
    """Deleted partitions of topics that a pattern had matched."""

    partitions: frozenset[KafkaTopicPartition]


PartitionChange: TypeAlias = DiscoveredPartitions | DeletedPartitions


def resolve_partitions(
    broker: BrokerClient,
    partitions: Iterable[KafkaTopicPartition],
    starting: KafkaOffsetsInitializer,
    stopping: KafkaOffsetsInitializer | None,
) -> DiscoveredPartitions:
    """Resolve the starting and stopping offsets of partitions that were not read before."""
    found = sorted(partitions)
    start = starting.resolve(found, broker)
    start |= starting.reset_out_of_range(start, broker)
    stop = {} if stopping is None else stopping.resolve(found, broker)
    return DiscoveredPartitions(start, stop, broker.topic_ids({p.topic for p in found}))


def describe_partitions(partitions: Iterable[KafkaTopicPartition]) -> tuple[str, ...]:
    """Return partitions as they are named in messages."""
    return tuple(f"partition {p.partition} of topic {p.topic!r}" for p in sorted(partitions))


class PartitionMonitor:
    """Looks for new records and partitions, and commits offsets, in a thread of its own.

    While the cluster or a partition leader is unreachable, it keeps trying; the other partitions
    are still read. A deleted topic is an error if it was named, and dropped if a pattern matched
    it. Any other failure ends the thread and is kept in :attr:`error`.

    The thread replaces :attr:`available` and :attr:`error` as a whole, so the enumerator reads
    them without a lock. Changes of the partitions are handed over under the lock.
    """

    def __init__(
        self,
        broker: BrokerClient,
        subscription: Subscription,
        stopping: KafkaOffsetsInitializer | None,
        available: AvailableOffsets,
        discovery_seconds: float,
        wake: Callable[[], None],
        check_owner: Callable[[], None],
    ) -> None:
        """Start from known offsets; `check_owner` is called before offsets are committed."""
        self.error: Exception | None = None
        self.available = available
        self._broker = broker
        self._subscription = subscription
        self._stopping = stopping
        self._discovery_seconds = discovery_seconds
        self._wake = wake
        self._check_owner = check_owner
        self._known = set(available.latest)
        self._unreachable: set[KafkaTopicPartition] = set()
        self._missing_since: dict[KafkaTopicPartition, float] = {}
        self._changes: list[PartitionChange] = []
        self._lock = threading.Lock()
        self._committer = OffsetCommitter(broker)
        self._stop = threading.Event()
        self._disconnected = False
        self._next_discovery = time.monotonic() + discovery_seconds
        self._next_earliest = 0.0
        self._thread = threading.Thread(target=self._run, name="kafka-source", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take_partition_changes(self) -> list[PartitionChange]:
        """Return the changes since the last call; :attr:`available` already includes them."""
        with self._lock:
            changes, self._changes = self._changes, []
        return changes

    def commit(self, offsets: Offsets) -> None:
        """Request offsets to be committed; later ones replace them."""
        self._committer.request(offsets)

    def stop(self) -> None:
        """End the thread after a last attempt to commit offsets, and close the client."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._broker.close()

    def _run(self) -> None:
        kafka_error = confluent().KafkaException
        while not self._stop.wait(_POLL_SECONDS):
            try:
                self._poll()
            except kafka_error as error:
                if not self._disconnected:
                    _log.warning("Kafka is unreachable (%s): %s", self._subscription, error)
                self._disconnected = True
            except Exception as error:
                self.error = error
                self._wake()
                return
            else:
                if self._disconnected:
                    _log.warning("Kafka is reachable again (%s)", self._subscription)
                self._disconnected = False
        if not self._disconnected:
            with suppress(FencedError):
                self._check_owner()
                self._committer.flush()

    def _poll(self) -> None:
        now = time.monotonic()
        if self._disconnected or self._unreachable:
            # Refreshes the metadata: otherwise the client asks an old leader for minutes.
            self._broker.topics()
        if self._discovery_seconds > 0 and now >= self._next_discovery:
            self._next_discovery = now + self._discover()
        earliest = self.available.earliest
        if now >= self._next_earliest or not self._known <= earliest.keys():
            earliest = self._updated(earliest, self._broker.known_earliest(self._known))
            self._next_earliest = now + _EARLIEST_OFFSETS_SECONDS
        latest = self._broker.known_latest(self._known)
        seen = AvailableOffsets(earliest, self._updated(self.available.latest, latest))
        changed, self.available = seen != self.available, seen
        self._handle_missing(latest.missing, now)
        if changed:
            self._wake()
        unreachable = self._known - latest.offsets.keys() - latest.missing
        if new := unreachable - self._unreachable:
            names = ", ".join(describe_partitions(new))
            _log.warning("Kafka has no reachable leader for %s: retrying", names)
        self._unreachable = unreachable
        self._check_owner()
        self._committer.poll()

    def _updated(self, old: Offsets, new: KnownOffsets) -> Offsets:
        existing = self._known - new.missing
        return {p: offset for p, offset in (old | new.offsets).items() if p in existing}

    def _discover(self) -> float:
        """Look for new partitions; return the seconds until the next discovery."""
        kafka_error = confluent().KafkaException
        try:
            existing = self._subscription.found_in(self._broker.topics())
        except kafka_error as error:
            _log.debug("Partition discovery failed: %s", error)
            return min(self._discovery_seconds, _DISCOVERY_RETRY_SECONDS)
        delay = self._discovery_seconds
        new = existing - self._known
        try:
            self._add(new)
        except kafka_error:
            # One unreachable partition must not hide the others.
            for partition in sorted(new):
                try:
                    self._add({partition})
                except kafka_error as error:
                    _log.debug("%s has no offsets yet: %s", partition.split, error)
                    delay = min(delay, _DISCOVERY_RETRY_SECONDS)
        return delay

    def _add(self, new: set[KafkaTopicPartition]) -> None:
        if not new:
            return
        # As in Flink: records written before a partition was discovered are read too.
        earliest = KafkaOffsetsInitializer.earliest()
        found = resolve_partitions(self._broker, new, earliest, self._stopping)
        _log.info("Discovered partitions: %s", ", ".join(p.split for p in sorted(new)))
        with self._lock:
            self._changes.append(found)
        self._known |= new

    def _handle_missing(self, missing: frozenset[KafkaTopicPartition], now: float) -> None:
        self._missing_since = {p: self._missing_since.get(p, now) for p in missing}
        deleted = {p for p, since in self._missing_since.items() if now - since >= _DELETED_SECONDS}
        if not deleted:
            return
        names = describe_partitions(deleted)
        if self._subscription.pattern is None:
            raise MissingTopicError(names, self._broker.servers)
        _log.warning("Deleted partitions are no longer read: %s", ", ".join(names))
        with self._lock:
            self._changes.append(DeletedPartitions(frozenset(deleted)))
        self._known -= deleted
        self._wake()
