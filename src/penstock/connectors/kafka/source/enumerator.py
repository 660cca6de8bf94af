"""Plans on the driver which offsets of which partitions each micro-batch reads."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.connectors.contracts.source import (
    EnumeratorContext,
    ReadPlan,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.kafka.client import KafkaProperties, confluent, retry
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.connectors.kafka.source.broker_client import BrokerClient, TopicId
from penstock.connectors.kafka.source.initial_offsets import InitialOffsets, InitialOffsetsFile
from penstock.connectors.kafka.source.offsets_initializer import KafkaOffsetsInitializer, Offsets
from penstock.connectors.kafka.source.partition_monitor import (
    AvailableOffsets,
    DeletedPartitions,
    DiscoveredPartitions,
    PartitionMonitor,
    describe_partitions,
    resolve_partitions,
)
from penstock.connectors.kafka.source.split_assignment import fair_shares, split_owner
from penstock.errors import KafkaUnavailableError, LostRecordsError, MissingTopicError

_log = logging.getLogger(__name__)

T = TypeVar("T")

_REQUEST_SECONDS = 5.0
_RETRY_SECONDS = 0.2
# Not every broker knows a topic that was just created.
_MISSING_SECONDS = 5.0
# A broker that has just come back may report an end offset before the true one.
_SETTLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KafkaSourceSettings:
    """Everything a source passes to its enumerator.

    ``stopping`` is None for a source that never ends. With a ``discovery_seconds`` of 0 or less
    there is no partition discovery. ``api_timeout`` bounds, in seconds, how long a start waits for
    the cluster. ``commits`` enables committing offsets to the group on checkpoints, and
    ``skip_lost_records`` continues after records that retention has deleted.
    """

    properties: KafkaProperties
    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    discovery_seconds: float
    api_timeout: float
    commits: bool
    skip_lost_records: bool

    def offsets_request(self) -> str:
        """Return everything that decides the initial offsets, as text; it is hashed on disk."""
        servers, group = self.properties["bootstrap.servers"], self.properties.get("group.id")
        return f"{servers} {group} {self.subscription} {self.starting!r} {self.stopping!r}"


class _State(msgspec.Struct, frozen=True):
    """What a checkpoint holds in addition to the positions."""

    stops: dict[str, int]
    is_bounded: bool = False
    """Whether the source was bounded: then the set of its partitions is final."""
    topics: dict[str, TopicId] = {}
    """The topics that the positions refer to."""


class KafkaEnumerator(SourceEnumerator):
    """Plans offset ranges; a partition is always read by the same subtask."""

    def __init__(self, settings: KafkaSourceSettings, context: EnumeratorContext) -> None:
        self._settings = settings
        self._context = context
        self._restored: _State | None = None
        self._next: Offsets = {}
        self._stop: Offsets = {}
        self._ids: dict[str, TopicId] = {}
        self._out_of_range_since: dict[KafkaTopicPartition, float] = {}
        self._monitor: PartitionMonitor | None = None

    def restore_state(self, memory: bytes) -> None:
        self._restored = msgspec.json.decode(memory, type=_State)

    def start(self, positions: Mapping[str, int]) -> None:
        settings = self._settings
        broker = BrokerClient(settings.properties, min(_REQUEST_SECONDS, settings.api_timeout))
        try:
            state = self._restored or _State({})
            if self._restored is None and not positions:
                self._start_fresh(broker)
            else:
                self._restore(positions, state)
                self._add(self._find_partitions(broker))
            self._check_recreated_topics(broker, state.topics)
            available = self._available(broker)
            self._check_start(broker, available)
        except BaseException:
            broker.close()
            raise
        self._monitor = PartitionMonitor(
            broker,
            settings.subscription,
            settings.stopping,
            available,
            settings.discovery_seconds,
            self._context.wake,
            self._context.check_owner,
        )
        self._monitor.start()

    def plan(self, max_records: int) -> ReadPlan:
        monitor = self._running()
        if monitor.error is not None:
            raise monitor.error
        for change in monitor.take_partition_changes():
            if isinstance(change, DeletedPartitions):
                self._remove(change.partitions)
            else:
                self._add(change)
        available = monitor.available
        self._check_range(available, _SETTLE_SECONDS)
        shares = fair_shares(self._backlogs(available), max_records)
        if not shares:
            return []
        plan: ReadPlan = [[] for _ in range(self._context.parallelism)]
        for partition in sorted(shares):
            start = self._next[partition]
            end = start + shares[partition]
            subtask = split_owner(partition, self._context.parallelism)
            plan[subtask].append(SplitRange(partition.split, start, end))
            self._next[partition] = end
        return plan

    def positions(self) -> dict[str, int]:
        return _by_split(self._next)

    def parallel_splits(self) -> Collection[str]:
        return [partition.split for partition in self._next]

    def is_finished(self, split: str) -> bool:
        partition = KafkaTopicPartition.of_split(split)
        if partition not in self._next:
            return True
        return partition in self._stop and self._next[partition] >= self._stop[partition]

    def snapshot_state(self) -> bytes:
        return msgspec.json.encode(_State(_by_split(self._stop), self._is_bounded(), self._ids))

    def finished(self) -> bool:
        return self._settings.stopping is not None and not self._unfinished()

    def next_poll(self) -> float | None:
        monitor = self._running()
        if self.finished():
            return None
        if monitor.error is not None or self._backlogs(monitor.available):
            return 0.0
        if self._out_of_range_since:
            since = min(self._out_of_range_since.values())
            return max(0.0, since + _SETTLE_SECONDS - time.monotonic())
        return None

    def pending_records(self) -> int | None:
        monitor = self._monitor
        return None if monitor is None else sum(self._backlogs(monitor.available).values())

    def notify_checkpoint_complete(self, positions: Mapping[str, int]) -> None:
        if self._settings.commits and self._monitor is not None:
            self._monitor.commit(
                {KafkaTopicPartition.of_split(split): n for split, n in positions.items()}
            )

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.stop()
            self._monitor = None

    def _running(self) -> PartitionMonitor:
        assert self._monitor is not None, "start() must be called first"
        return self._monitor

    def _start_fresh(self, broker: BrokerClient) -> None:
        """Resolve the initial offsets, or reuse those of an attempt without a checkpoint."""
        settings, context = self._settings, self._context
        place = context.store or context.work_dir
        file = InitialOffsetsFile(place, context.lineage, settings.offsets_request())
        initial = file.read() if context.lineage else None
        if initial is None:
            new = settings.subscription.found_in(self._topics(broker))
            found = self._with_retries(
                lambda: resolve_partitions(broker, new, settings.starting, settings.stopping)
            )
            if not context.lineage:
                self._add(found)
                return
            # Durable before the first record is planned: a crash from here on finds the file.
            initial = file.write(InitialOffsets(_by_split(found.start), _by_split(found.stop)))
        self._restored = _State(initial.stops, self._is_bounded())
        self._restore(initial.starts, self._restored)
        self._add(self._find_partitions(broker))
        if settings.starting == KafkaOffsetsInitializer.earliest():
            # Retention may have deleted records since; `earliest` does not promise those.
            first = self._with_retries(lambda: broker.known_earliest(self._next)).offsets
            self._next |= {p: max(offset, self._next[p]) for p, offset in first.items()}

    def _restore(self, positions: Mapping[str, int], state: _State) -> None:
        for split, offset in positions.items():
            partition = KafkaTopicPartition.of_split(split)
            if not self._settings.subscription.wants(partition):
                _log.warning("%s is no longer subscribed; its position was %d", split, offset)
                continue
            self._next[partition] = offset
            if self._settings.stopping is not None and split in state.stops:
                self._stop[partition] = state.stops[split]

    def _find_partitions(self, broker: BrokerClient) -> DiscoveredPartitions:
        """Find partitions without a restored position, and missing stopping offsets."""
        settings, state = self._settings, self._restored
        new = settings.subscription.found_in(self._topics(broker)) - self._next.keys()
        was_bounded = state is not None and (state.is_bounded or bool(state.stops))
        if self._is_bounded() and was_bounded:
            # The first start of a bounded source has fixed its partitions and their ends.
            new = set()
        earliest = KafkaOffsetsInitializer.earliest()
        found = self._with_retries(
            lambda: resolve_partitions(broker, new, earliest, settings.stopping)
        )
        if (stopping := settings.stopping) is not None:
            unbounded = self._next.keys() - self._stop.keys()
            self._stop |= self._with_retries(lambda: stopping.resolve(unbounded, broker))
        return found

    def _is_bounded(self) -> bool:
        return self._settings.stopping is not None and self._settings.discovery_seconds <= 0

    def _topics(self, broker: BrokerClient) -> dict[str, int]:
        """Return all topics, after waiting for named and previously read ones to appear.

        Deleted partitions of a topic that a pattern matched are dropped.
        """
        began = time.monotonic()
        subscription = self._settings.subscription
        while True:
            topics = self._with_retries(broker.topics)
            missing = subscription.missing_in(topics)
            deleted = self._with_retries(lambda: broker.known_latest(self._next)).missing
            if not missing and not deleted:
                return topics
            if time.monotonic() - began >= (_MISSING_SECONDS if missing else _SETTLE_SECONDS):
                names = describe_partitions(deleted)
                if missing or subscription.pattern is None:
                    raise MissingTopicError(tuple(missing or names), self._servers())
                _log.warning("Deleted partitions are no longer read: %s", ", ".join(names))
                self._remove(deleted)
                return topics
            time.sleep(_RETRY_SECONDS)

    def _remove(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)
            self._stop.pop(partition, None)
            self._out_of_range_since.pop(partition, None)
        left = {partition.topic for partition in self._next}
        self._ids = {topic: known for topic, known in self._ids.items() if topic in left}

    def _add(self, found: DiscoveredPartitions) -> None:
        self._next |= found.start
        self._stop |= found.stop
        self._ids = found.topics | self._ids

    def _check_recreated_topics(self, broker: BrokerClient, then: Mapping[str, TopicId]) -> None:
        """Reject positions in topics that were recreated: the offsets mean other records there.

        A topic that a pattern matches is read from its beginning, as while a job runs.
        """
        self._ids = self._with_retries(lambda: broker.topic_ids({p.topic for p in self._next}))
        recreated = [
            p
            for p in sorted(self._unfinished())
            if self._next[p] > 0
            and p.topic in self._ids
            and p.topic in then
            and self._ids[p.topic].is_recreated(then[p.topic])
        ]
        first, end = self._with_retries(
            lambda: (broker.earliest(recreated), broker.latest(recreated))
        )
        for p in recreated:
            if self._settings.subscription.pattern is None:
                self._reject_unless_skipping(p, first[p], end[p])
            self._skip_to(p, first[p], "the topic was recreated")

    def _available(self, broker: BrokerClient) -> AvailableOffsets:
        return self._with_retries(
            lambda: AvailableOffsets(broker.earliest(self._next), broker.latest(self._next))
        )

    def _check_start(self, broker: BrokerClient, available: AvailableOffsets) -> None:
        """Reject positions that are out of range before anything is read."""
        deadline = time.monotonic() + min(_SETTLE_SECONDS, self._settings.api_timeout)
        while any(self._next[p] > available.latest[p] for p in self._unfinished()):
            if time.monotonic() >= deadline:
                break
            time.sleep(_RETRY_SECONDS)
            available = self._available(broker)
        self._check_range(available, 0.0)

    def _check_range(self, available: AvailableOffsets, settle_seconds: float) -> None:
        """Reject a position that is out of range, or skip to the next available record."""
        now = time.monotonic()
        for partition in self._unfinished():
            position = self._next[partition]
            first, end = available.earliest.get(partition), available.latest.get(partition)
            if first is None or end is None or first <= position <= end:
                self._out_of_range_since.pop(partition, None)
                continue
            since = self._out_of_range_since.setdefault(partition, now)
            if position > end and now - since < settle_seconds:
                continue
            self._reject_unless_skipping(partition, first, end)
            del self._out_of_range_since[partition]
            if position < first:
                self._skip_to(partition, first, f"{first - position} offsets are lost")
            else:
                self._skip_to(partition, end, "the topic was recreated or lost its end")

    def _reject_unless_skipping(self, p: KafkaTopicPartition, first: int, end: int) -> None:
        if not self._settings.skip_lost_records:
            raise LostRecordsError(p.topic, p.partition, self._next[p], first, end)

    def _skip_to(self, partition: KafkaTopicPartition, offset: int, reason: str) -> None:
        _log.warning(
            "%s: %s: the job continues at offset %d instead of %d",
            partition.split,
            reason,
            offset,
            self._next[partition],
        )
        self._next[partition] = offset

    def _unfinished(self) -> list[KafkaTopicPartition]:
        return [p for p, n in self._next.items() if p not in self._stop or n < self._stop[p]]

    def _backlogs(self, available: AvailableOffsets) -> Offsets:
        """Return the number of available records of each partition that has any."""
        backlogs = {
            p: min(end, self._stop.get(p, end)) - self._next[p]
            for p, end in available.latest.items()
            if p in self._next
        }
        return {p: count for p, count in backlogs.items() if count > 0}

    def _with_retries(self, query: Callable[[], T]) -> T:
        """Repeat a query until the cluster answers or the start times out."""
        timeout = self._settings.api_timeout
        try:
            return retry(query, timeout, _RETRY_SECONDS)
        except confluent().KafkaException as error:
            reason = error.args[0].str()
            raise KafkaUnavailableError(self._servers(), timeout, reason) from error

    def _servers(self) -> str:
        return self._settings.properties["bootstrap.servers"]


def _by_split(offsets: Offsets) -> dict[str, int]:
    return {partition.split: offset for partition, offset in offsets.items()}
