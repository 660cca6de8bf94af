"""Tracks the deliveries of one attempt: received, planned, checkpointed, acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.connectors.acknowledging.receiver import Delivery
from penstock.connectors.acknowledging.seen_ids import DeliveryId, SeenIds


class DeliveryTracker:
    """Numbers the records of an attempt from 0, and maps each to its delivery.

    A record is *received*, then *planned* into a micro-batch, then *checkpointed*, then
    acknowledged. The receiver thread receives and acknowledges, the driver loop plans and
    checkpoints. The lock guards everything that both use; `_handles` is only modified by the
    receiver thread.
    """

    def __init__(self, seen: SeenIds) -> None:
        self._lock = threading.Lock()
        self._seen = seen
        self._ids: list[DeliveryId] = []
        """Of the records from `_base` on, in the order of the log."""
        self._base = 0
        self.planned = 0
        """The number of the first record that is not planned."""
        self._checkpointed = 0
        self._handles: dict[DeliveryId, Any] = {}
        """The latest handle of each record that is not acknowledged."""
        self._arrivals: deque[tuple[float, int]] = deque()
        """When the records before a number were received."""

    # -- the receiver thread -----------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """How many deliveries wait for a checkpoint."""
        return len(self._handles)

    def admit(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Return the new deliveries, to be logged, and redeliveries, to be acknowledged again.

        Once the new ones are logged, pass their ids to :meth:`logged`. Only redeliveries that a
        completed checkpoint includes are returned.
        """
        new: list[Delivery] = []
        redelivered: list[Delivery] = []
        handles = self._handles
        with self._lock:
            for delivery in deliveries:
                id_, _, handle = delivery
                if id_ in handles:
                    # In progress in this attempt: the broker's ack timeout has expired.
                    handles[id_] = handle
                elif id_ in self._seen:
                    redelivered.append(delivery)
                else:
                    handles[id_] = handle
                    new.append(delivery)
        return new, redelivered

    def logged(self, ids: Sequence[DeliveryId], now: float) -> None:
        """Record that these deliveries are in the log, and may be planned."""
        with self._lock:
            self._ids.extend(ids)
            self._arrivals.append((now, self._end))

    def take_checkpointed(self, limit: int) -> tuple[list[DeliveryId], list[Any]]:
        """Remove deliveries that a completed checkpoint includes; return their ids and handles."""
        with self._lock:
            count = min(self._checkpointed - self._base, limit)
            ids = self._ids[:count]
            del self._ids[:count]
            self._base += count
            while self._arrivals and self._arrivals[0][1] <= self._base:
                self._arrivals.popleft()
            return ids, [self._handles.pop(id_) for id_ in ids]

    def acknowledged(self, ids: Sequence[DeliveryId]) -> None:
        """Record that the broker has confirmed these acknowledgements."""
        with self._lock:
            self._seen.acknowledged(ids)

    def acknowledged_up_to(self, number: int) -> None:
        """Record that the broker waits for no acknowledgement up to a number."""
        with self._lock:
            self._seen.numbers.fill_up_to(number)

    def waiting_since(self, time: float) -> list[Any]:
        """Return the handles of what was received before a time."""
        with self._lock:
            ends = [end for arrived, end in self._arrivals if arrived <= time]
            count = ends[-1] - self._base if ends else 0
            return [self._handles[id_] for id_ in self._ids[:count]]

    def not_checkpointed(self) -> list[Any]:
        """Return the handles of everything that no completed checkpoint includes."""
        with self._lock:
            checkpointed = set(self._ids[: self._checkpointed - self._base])
            return [handle for id_, handle in self._handles.items() if id_ not in checkpointed]

    # -- the driver loop ---------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether there is anything to plan."""
        with self._lock:
            return self.planned < self._end

    @property
    def pending(self) -> int:
        """How many records can be planned."""
        with self._lock:
            return self._end - self.planned

    def plan(self, max_records: int) -> tuple[int, int]:
        """Advance past the next records, and return their numbers, the end exclusive."""
        with self._lock:
            start = self.planned
            self.planned = min(self._end, start + max_records)
            self._seen.add(self._ids[start - self._base : self.planned - self._base])
            return start, self.planned

    def checkpoint(self, position: int) -> None:
        """Record that a completed checkpoint includes the records before a number."""
        with self._lock:
            self._checkpointed = max(self._checkpointed, min(position, self.planned))

    def encode(self) -> bytes:
        """Return the ids of all deliveries planned so far, encoded for a checkpoint."""
        with self._lock:
            return self._seen.encode()

    @property
    def _end(self) -> int:
        return self._base + len(self._ids)
