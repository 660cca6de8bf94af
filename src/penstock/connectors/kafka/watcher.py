"""The thread that keeps an eye on the broker for an enumerator."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.connectors.kafka.broker import Broker
from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.group_commits import GroupCommits
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, Offsets
from penstock.connectors.kafka.partitions import KafkaTopicPartition, Subscription

__all__ = ["BrokerView", "FoundPartitions", "Watcher", "find_partitions"]

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
# Retention moves in minutes; asking for it every time would double the requests.
_FIRST_OFFSETS_SECONDS = 1.0


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
    return FoundPartitions(start, {} if stopping is None else stopping.resolve(found, broker))


class Watcher:
    """Looks for new records and new partitions, and commits offsets, in the background.

    A broker that is away is waited for. What else goes wrong ends the thread and waits in
    :attr:`error`.
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
        self._found: list[FoundPartitions] = []
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

    def take_found(self) -> list[FoundPartitions]:
        """Hand over the partitions found since the last call; the view knows them already."""
        with self._lock:
            found, self._found = self._found, []
        return found

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
        if self._away:
            # Else the client would go on asking a leader it knows, and be refused for minutes.
            self._broker.topics()
        if self._discovery_seconds > 0 and now >= self._next_discovery:
            self._discover()
            self._next_discovery = now + self._discovery_seconds
        first = self.view.first
        if now >= self._next_first_offsets or first.keys() != self._known:
            first = self._broker.earliest(self._known)
            self._next_first_offsets = now + _FIRST_OFFSETS_SECONDS
        seen = BrokerView(first, self._broker.latest(self._known))
        changed, self.view = seen != self.view, seen
        if changed:
            self._wake()
        self._commits.go_on()

    def _discover(self) -> None:
        there = self._subscription.found_in(self._broker.topics())
        if new := there - self._known:
            # As in Flink: what was written before a partition was noticed is not missed.
            earliest = KafkaOffsetsInitializer.earliest()
            found = find_partitions(self._broker, new, earliest, self._stopping)
            _log.info("new partitions: %s", ", ".join(p.split for p in sorted(new)))
            with self._lock:
                self._found.append(found)
            self._known |= new

    def _is_away(self, reason: str) -> None:
        if not self._away:
            _log.warning("waiting for Kafka (%s): %s", self._subscription, reason)
        self._away = True

    def _is_back(self) -> None:
        if self._away:
            _log.warning("Kafka is back (%s)", self._subscription)
        self._away = False
