"""The driver's half of a Kafka source: which offsets each micro-batch reads."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.connectors.kafka.broker import Broker, TopicId
from penstock.connectors.kafka.client import KafkaProperties, confluent
from penstock.connectors.kafka.first_start import FirstStart, FirstStartNote
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription, subtask_of
from penstock.connectors.kafka.sharing import share
from penstock.connectors.kafka.watcher import (
    BrokerView,
    FoundPartitions,
    GonePartitions,
    Watcher,
    find_partitions,
    name_all,
)
from penstock.connectors.source import EnumeratorContext, Plan, SourceEnumerator, SplitRange
from penstock.errors import KafkaUnavailableError, LostRecordsError, MissingTopicError

__all__ = ["KafkaEnumerator", "Reading"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_REQUEST_SECONDS = 5.0
_RETRY_SECONDS = 0.2
# A topic made a moment ago is not known everywhere yet.
_MISSING_SECONDS = 5.0
# A broker that has just come back may know an end that lies before the true one.
_SETTLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read: all that a source tells its enumerator.

    ``stopping`` is None for a source without end. A ``discovery_seconds`` of 0 or less leaves
    partitions that come later alone. ``commits`` tells whether completed offsets are told to
    the group, and ``skips_lost`` whether to go on behind records that are gone.
    """

    properties: KafkaProperties
    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    discovery_seconds: float
    start_seconds: float
    commits: bool
    skips_lost: bool

    def asked(self) -> str:
        """Spell all that decides on where to begin and to stop."""
        servers, group = self.properties["bootstrap.servers"], self.properties.get("group.id")
        return f"{servers} {group} {self.subscription} {self.starting!r} {self.stopping!r}"


class _Memory(msgspec.Struct, frozen=True):
    """What a checkpoint holds besides positions."""

    stops: dict[str, int]
    is_bounded: bool = False
    """Whether the source was a bounded one, all of whose partitions are known since."""
    topics: dict[str, TopicId] = {}
    """Which topics the positions are in."""


class KafkaEnumerator(SourceEnumerator):
    """Cuts off offsets of the partitions, each read by the same subtask as long as it lives."""

    def __init__(self, reading: Reading, context: EnumeratorContext) -> None:
        self._reading = reading
        self._context = context
        self._memory: _Memory | None = None
        self._next: Offsets = {}
        self._stop: Offsets = {}
        self._ids: dict[str, TopicId] = {}
        self._beyond_since: dict[KafkaTopicPartition, float] = {}
        self._watcher: Watcher | None = None

    def recall(self, memory: bytes) -> None:
        self._memory = msgspec.json.decode(memory, type=_Memory)

    def start(self, positions: Mapping[str, int]) -> None:
        reading = self._reading
        broker = Broker(reading.properties, min(_REQUEST_SECONDS, reading.start_seconds))
        try:
            memory = self._memory or _Memory({})
            if self._memory is None and not positions:
                self._begin(broker)
            else:
                self._restore(positions, memory)
                self._adopt(self._find_all(broker))
            self._leave_topics_made_anew(broker, memory.topics)
            view = self._patiently(
                lambda: BrokerView(broker.earliest(self._next), broker.latest(self._next))
            )
            self._settle(broker, view)
        except BaseException:
            broker.close()
            raise
        self._watcher = Watcher(
            broker,
            reading.subscription,
            reading.stopping,
            view,
            reading.discovery_seconds,
            self._context.wake,
        )
        self._watcher.start()

    def plan(self, max_records: int) -> Plan:
        watcher = self._running()
        if watcher.error is not None:
            raise watcher.error
        for news in watcher.take_news():
            if isinstance(news, GonePartitions):
                self._forget(news.partitions)
            else:
                self._adopt(news)
        view = watcher.view
        self._check(view, _SETTLE_SECONDS)
        shares = share(self._backlogs(view), max_records)
        if not shares:
            return []
        plan: Plan = [[] for _ in range(self._context.parallelism)]
        for partition in sorted(shares):
            start = self._next[partition]
            end = start + shares[partition]
            subtask = subtask_of(partition, self._context.parallelism)
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

    def memory(self) -> bytes:
        return msgspec.json.encode(_Memory(_by_split(self._stop), self._is_bounded(), self._ids))

    def finished(self) -> bool:
        if self._reading.stopping is None:
            return False
        return not self._unfinished()

    def next_poll(self) -> float | None:
        watcher = self._running()
        if self.finished():
            return None
        if watcher.error is not None or self._backlogs(watcher.view):
            return 0.0
        if self._beyond_since:
            since = min(self._beyond_since.values())
            return max(0.0, since + _SETTLE_SECONDS - time.monotonic())
        return None

    def completed(self, positions: Mapping[str, int]) -> None:
        if self._reading.commits and self._watcher is not None:
            self._watcher.commit(
                {KafkaTopicPartition.of_split(split): n for split, n in positions.items()}
            )

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None

    def _running(self) -> Watcher:
        assert self._watcher is not None, "start() comes first"
        return self._watcher

    def _begin(self, broker: Broker) -> None:
        """Look up where to begin, or go by what an attempt before this one found.

        It died before its first checkpoint then.
        """
        reading, context = self._reading, self._context
        note = FirstStartNote(context.work_dir, context.life, reading.asked())
        began = note.read() if context.life else None
        if began is None:
            new = reading.subscription.found_in(self._topics(broker))
            found = self._patiently(
                lambda: find_partitions(broker, new, reading.starting, reading.stopping)
            )
            if not context.life:
                self._adopt(found)
                return
            began = note.write(
                FirstStart(_by_split(found.start), _by_split(found.stop)), context.attempt
            )
        self._memory = _Memory(began.stops, self._is_bounded())
        self._restore(began.starts, self._memory)
        self._adopt(self._find_all(broker))
        if reading.starting == KafkaOffsetsInitializer.earliest():
            # Nothing was promised but the first offset there is.
            first = self._patiently(lambda: broker.firsts_told(self._next)).offsets
            self._next |= {p: max(offset, self._next[p]) for p, offset in first.items()}

    def _restore(self, positions: Mapping[str, int], memory: _Memory) -> None:
        for split, offset in positions.items():
            partition = KafkaTopicPartition.of_split(split)
            if not self._reading.subscription.wants(partition):
                _log.warning("%s is no longer read; it was at offset %d", split, offset)
                continue
            self._next[partition] = offset
            if self._reading.stopping is not None and split in memory.stops:
                self._stop[partition] = memory.stops[split]

    def _find_all(self, broker: Broker) -> FoundPartitions:
        """Find the partitions that no checkpoint knows, and ends for those without one."""
        reading = self._reading
        new = reading.subscription.found_in(self._topics(broker)) - self._next.keys()
        memory = self._memory
        was_bounded = memory is not None and (memory.is_bounded or bool(memory.stops))
        if self._is_bounded() and was_bounded:
            # The end of a bounded source was settled at its first start, partitions and all.
            new = set()
        earliest = KafkaOffsetsInitializer.earliest()
        found = self._patiently(lambda: find_partitions(broker, new, earliest, reading.stopping))
        if (stopping := reading.stopping) is not None:
            endless = self._next.keys() - self._stop.keys()
            self._stop |= self._patiently(lambda: stopping.resolve(endless, broker))
        return found

    def _is_bounded(self) -> bool:
        return self._reading.stopping is not None and self._reading.discovery_seconds <= 0

    def _topics(self, broker: Broker) -> dict[str, int]:
        """Return all topics, once everything is there that was named or read before.

        Under a pattern, what was deleted since is no longer read.
        """
        began = time.monotonic()
        while True:
            topics = self._patiently(broker.topics)
            missing = self._reading.subscription.missing_in(topics)
            gone = self._patiently(lambda: broker.ends_told(self._next)).gone
            if not missing and not gone:
                return topics
            if time.monotonic() - began >= (_MISSING_SECONDS if missing else _SETTLE_SECONDS):
                if missing or self._reading.subscription.pattern is None:
                    named = missing or name_all(gone)
                    raise MissingTopicError(tuple(named), self._bootstrap_servers())
                _log.warning("no longer there, and no longer read: %s", ", ".join(name_all(gone)))
                self._forget(gone)
                return topics
            time.sleep(_RETRY_SECONDS)

    def _forget(self, partitions: Iterable[KafkaTopicPartition]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)
            self._stop.pop(partition, None)
            self._beyond_since.pop(partition, None)
        left = {partition.topic for partition in self._next}
        self._ids = {topic: known for topic, known in self._ids.items() if topic in left}

    def _adopt(self, found: FoundPartitions) -> None:
        self._next |= found.start
        self._stop |= found.stop
        self._ids = found.topics | self._ids

    def _leave_topics_made_anew(self, broker: Broker, then: Mapping[str, TopicId]) -> None:
        """Refuse positions in topics that are others now, whose offsets mean other records.

        As while a job runs, a topic of a pattern is read from its beginning.
        """
        self._ids = self._patiently(lambda: broker.topic_ids({p.topic for p in self._next}))
        made_anew = [
            p
            for p in sorted(self._unfinished())
            if self._next[p] > 0 and _is_another(self._ids.get(p.topic), then.get(p.topic))
        ]
        first, end = self._patiently(lambda: (broker.earliest(made_anew), broker.latest(made_anew)))
        for p in made_anew:
            if not self._reading.skips_lost and self._reading.subscription.pattern is None:
                raise LostRecordsError(p.topic, p.partition, self._next[p], first[p], end[p])
            _log.warning(
                "%s: the topic was made anew: the job goes on at offset %d instead of %d",
                p.split,
                first[p],
                self._next[p],
            )
            self._next[p] = first[p]

    def _settle(self, broker: Broker, view: BrokerView) -> None:
        """Refuse positions Kafka does not have, before anything is read."""
        deadline = time.monotonic() + min(_SETTLE_SECONDS, self._reading.start_seconds)
        while any(self._next[p] > view.end[p] for p in self._unfinished()):
            if time.monotonic() >= deadline:
                break
            time.sleep(_RETRY_SECONDS)
            view = self._patiently(
                lambda: BrokerView(broker.earliest(self._next), broker.latest(self._next))
            )
        self._check(view, 0.0)

    def _check(self, view: BrokerView, patience: float) -> None:
        """Refuse a position Kafka does not have, or step over what is lost."""
        now = time.monotonic()
        for partition in self._unfinished():
            position = self._next[partition]
            first, end = view.first.get(partition), view.end.get(partition)
            if first is None or end is None or first <= position <= end:
                self._beyond_since.pop(partition, None)
                continue
            since = self._beyond_since.setdefault(partition, now)
            if position > end and now - since < patience:
                continue
            if not self._reading.skips_lost:
                topic, number = partition.topic, partition.partition
                raise LostRecordsError(topic, number, position, first, end)
            self._next[partition] = first if position < first else end
            del self._beyond_since[partition]
            _log.warning(
                "%s: %s: the job goes on at offset %d instead of %d",
                partition.split,
                f"{first - position} offsets are lost"
                if position < first
                else "the topic was made anew or lost its end",
                self._next[partition],
                position,
            )

    def _unfinished(self) -> list[KafkaTopicPartition]:
        return [p for p, n in self._next.items() if p not in self._stop or n < self._stop[p]]

    def _backlogs(self, view: BrokerView) -> Offsets:
        """Count what is there to read now, per partition that has something."""
        backlogs = {
            p: min(end, self._stop.get(p, end)) - self._next[p]
            for p, end in view.end.items()
            if p in self._next
        }
        return {p: count for p, count in backlogs.items() if count > 0}

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask the broker until it answers, as long as a start may take."""
        seconds = self._reading.start_seconds
        deadline = time.monotonic() + seconds
        kafka_error = confluent().KafkaException
        while True:
            try:
                return ask()
            except kafka_error as error:
                if time.monotonic() >= deadline:
                    reason = error.args[0].str() if error.args else str(error)
                    servers = self._bootstrap_servers()
                    raise KafkaUnavailableError(servers, seconds, reason) from error
            time.sleep(_RETRY_SECONDS)

    def _bootstrap_servers(self) -> str:
        return self._reading.properties["bootstrap.servers"]


def _is_another(now: TopicId | None, then: TopicId | None) -> bool:
    return now is not None and then is not None and now.is_another(then)


def _by_split(offsets: Offsets) -> dict[str, int]:
    return {partition.split: offset for partition, offset in offsets.items()}
