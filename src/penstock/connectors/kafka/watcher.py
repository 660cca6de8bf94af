"""The thread that keeps an eye on the broker for an enumerator."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.connectors.kafka.broker import Broker, Told, TopicId
from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.group_commits import GroupCommits
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from penstock.errors import MissingTopicError

__all__ = [
    "BrokerView",
    "FoundPartitions",
    "GonePartitions",
    "News",
    "Watcher",
    "find_partitions",
    "name_all",
]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
# Retention moves in minutes; asking for it every time would double the requests.
_FIRST_OFFSETS_SECONDS = 1.0
_DISCOVERY_RETRY_SECONDS = 1.0
# A broker may not know a topic for a moment; one that is taken for deleted begins anew.
_GONE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class BrokerView:
    """Where each known partition begins and ends, when the broker was last asked."""

    first: Offsets
    end: Offsets


@dataclass(frozen=True, slots=True)
class FoundPartitions:
    """Partitions that were not known before: where to begin, and to stop if they have to."""

    start: Offsets
    stop: Offsets
    topics: dict[str, TopicId]


@dataclass(frozen=True, slots=True)
class GonePartitions:
    """Partitions that were deleted, of topics that nobody named."""

    partitions: frozenset[KafkaTopicPartition]


News: TypeAlias = FoundPartitions | GonePartitions


def find_partitions(
    broker: Broker,
    partitions: Iterable[KafkaTopicPartition],
    starting: KafkaOffsetsInitializer,
    stopping: KafkaOffsetsInitializer | None,
) -> FoundPartitions:
    """Look up where to begin and to stop in partitions nobody has read yet."""
    found = sorted(partitions)
    start = starting.resolve(found, broker)
    start |= starting.moved_inside(start, broker)
    stop = {} if stopping is None else stopping.resolve(found, broker)
    return FoundPartitions(start, stop, broker.topic_ids({p.topic for p in found}))


def name_all(partitions: Iterable[KafkaTopicPartition]) -> tuple[str, ...]:
    """Name partitions in a sentence about them."""
    return tuple(f"partition {p.partition} of topic {p.topic!r}" for p in sorted(partitions))


class Watcher:
    """Looks for new records and new partitions, and commits offsets, in the background.

    A broker that is away is waited for, and so is one that leads some of the partitions: the
    others are read on. A deleted topic is an error if it was named, and left alone if it just
    fitted a pattern. What goes wrong ends the thread and waits in :attr:`error`.
    """

    def __init__(
        self,
        broker: Broker,
        subscription: Subscription,
        stopping: KafkaOffsetsInitializer | None,
        view: BrokerView,
        discovery_seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self.error: Exception | None = None
        self.view = view
        self._broker = broker
        self._subscription = subscription
        self._stopping = stopping
        self._discovery_seconds = discovery_seconds
        self._wake = wake
        self._known = set(view.end)
        self._silent: set[KafkaTopicPartition] = set()
        self._gone_since: dict[KafkaTopicPartition, float] = {}
        self._news: list[News] = []
        self._lock = threading.Lock()
        self._commits = GroupCommits(broker)
        self._stop = threading.Event()
        self._away = False
        self._next_discovery = time.monotonic() + discovery_seconds
        self._next_first_offsets = 0.0
        self._thread = threading.Thread(target=self._run, name="kafka-source", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def take_news(self) -> list[News]:
        """Hand over what was found or lost since the last call; the view has it already."""
        with self._lock:
            news, self._news = self._news, []
        return news

    def commit(self, offsets: Offsets) -> None:
        """Have offsets committed soon; only the newest ones matter."""
        self._commits.want(offsets)

    def stop(self) -> None:
        """End the thread, with a last try at what is to be committed, and hang up."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._broker.close()

    def _run(self) -> None:
        kafka_error = confluent().KafkaException
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self._look()
            except kafka_error as error:
                self._is_away(str(error))
            except Exception as error:
                self.error = error
                self._wake()
                return
            else:
                self._is_back()
        if not self._away:
            self._commits.finish()

    def _look(self) -> None:
        now = time.monotonic()
        if self._away or self._silent:
            # Else the client would go on asking a leader it knows, and be refused for minutes.
            self._broker.topics()
        if self._discovery_seconds > 0 and now >= self._next_discovery:
            self._next_discovery = now + self._discover()
        first = self.view.first
        if now >= self._next_first_offsets or not self._known <= first.keys():
            first = self._renewed(first, self._broker.firsts_told(self._known))
            self._next_first_offsets = now + _FIRST_OFFSETS_SECONDS
        told = self._broker.ends_told(self._known)
        seen = BrokerView(first, self._renewed(self.view.end, told))
        changed, self.view = seen != self.view, seen
        self._see_to_gone(told.gone, now)
        if changed:
            self._wake()
        self._tell_silent(self._known - told.offsets.keys() - told.gone)
        self._commits.go_on()

    def _renewed(self, old: Offsets, told: Told) -> Offsets:
        kept = self._known - told.gone
        return {p: offset for p, offset in (old | told.offsets).items() if p in kept}

    def _discover(self) -> float:
        """Look for partitions that came; return in how many seconds to look again."""
        kafka_error = confluent().KafkaException
        try:
            there = self._subscription.found_in(self._broker.topics())
        except kafka_error as error:
            _log.debug("no look for new partitions: %s", error)
            return min(self._discovery_seconds, _DISCOVERY_RETRY_SECONDS)
        again = self._discovery_seconds
        new = there - self._known
        try:
            self._take_in(new)
        except kafka_error:
            # One of them keeps the others from being looked up.
            for partition in sorted(new):
                try:
                    self._take_in({partition})
                except kafka_error as error:
                    _log.debug("%s is not looked up yet: %s", partition.split, error)
                    again = min(again, _DISCOVERY_RETRY_SECONDS)
        return again

    def _take_in(self, new: set[KafkaTopicPartition]) -> None:
        if not new:
            return
        # As in Flink: what was written before a partition was noticed is not missed.
        earliest = KafkaOffsetsInitializer.earliest()
        found = find_partitions(self._broker, new, earliest, self._stopping)
        _log.info("new partitions: %s", ", ".join(p.split for p in sorted(new)))
        with self._lock:
            self._news.append(found)
        self._known |= new

    def _see_to_gone(self, gone: frozenset[KafkaTopicPartition], now: float) -> None:
        self._gone_since = {p: self._gone_since.get(p, now) for p in gone}
        deleted = {p for p, since in self._gone_since.items() if now - since >= _GONE_SECONDS}
        if not deleted:
            return
        if self._subscription.pattern is None:
            raise MissingTopicError(name_all(deleted), self._broker.servers)
        _log.warning("no longer there, and no longer read: %s", ", ".join(name_all(deleted)))
        with self._lock:
            self._news.append(GonePartitions(frozenset(deleted)))
        self._known -= deleted
        self._wake()

    def _tell_silent(self, silent: set[KafkaTopicPartition]) -> None:
        if new := silent - self._silent:
            _log.warning("waiting for Kafka to answer for %s", ", ".join(name_all(new)))
        self._silent = silent

    def _is_away(self, reason: str) -> None:
        if not self._away:
            _log.warning("waiting for Kafka (%s): %s", self._subscription, reason)
        self._away = True

    def _is_back(self) -> None:
        if self._away:
            _log.warning("Kafka is back (%s)", self._subscription)
        self._away = False
