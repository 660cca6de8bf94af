"""The books of one attempt: what was received, planned, put into checkpoints and acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.receiver import Delivery
from penstock.connectors.seen_ids import DeliveryId, SeenIds

__all__ = ["Admitted", "Due", "Reception"]


@dataclass(frozen=True, slots=True)
class Due:
    """Deliveries to acknowledge."""

    ids: list[DeliveryId] = field(default_factory=list)
    handles: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Admitted:
    """What to do with some deliveries."""

    ids: list[DeliveryId] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    """Of the new ones: to be logged, and then told to :meth:`Reception.logged`."""
    again: Due = field(default_factory=Due)
    """Those whose effects a completed checkpoint holds: to be acknowledged at once."""


class Reception:
    """Numbers the records of an attempt from 0 on, and knows each one's delivery.

    A record is *received*, then *planned* into a micro-batch, then *settled* by a completed
    checkpoint, then acknowledged. One thread receives and acknowledges, another one plans and
    settles.
    """

    def __init__(self, seen: SeenIds) -> None:
        self._lock = threading.Lock()
        self._seen = seen
        self._ids: list[DeliveryId] = []
        """Of the records from `_base` on, in the order of the log."""
        self._base = 0
        self._planned = 0
        self._settled = 0
        self._handles: dict[DeliveryId, Any] = {}
        """The newest one of each record that is not acknowledged."""
        self._arrivals: deque[tuple[float, int]] = deque()
        """When the records before a number were received."""

    # -- the receiving thread ----------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """How many deliveries wait for a checkpoint."""
        return len(self._handles)

    def admit(self, deliveries: Sequence[Delivery]) -> Admitted:
        """Tell new deliveries from repeated ones."""
        admitted = Admitted()
        handles = self._handles
        with self._lock:
            for id_, payload, handle in deliveries:
                if id_ in handles:
                    # On its way in this attempt: the broker became impatient.
                    handles[id_] = handle
                elif id_ in self._seen:
                    admitted.again.ids.append(id_)
                    admitted.again.handles.append(handle)
                else:
                    handles[id_] = handle
                    admitted.ids.append(id_)
                    admitted.payloads.append(payload)
        return admitted

    def logged(self, ids: Sequence[DeliveryId], now: float) -> None:
        """Learn that the records of these deliveries can be read; from now on they are planned."""
        with self._lock:
            self._ids.extend(ids)
            self._arrivals.append((now, self._end))

    def due(self, limit: int) -> Due:
        """Hand over some deliveries to acknowledge; nobody asks for these again."""
        with self._lock:
            count = min(self._settled - self._base, limit)
            ids = self._ids[:count]
            del self._ids[:count]
            self._base += count
            while self._arrivals and self._arrivals[0][1] <= self._base:
                self._arrivals.popleft()
            return Due(ids, [self._handles.pop(id_) for id_ in ids])

    def acknowledged(self, ids: Sequence[DeliveryId]) -> None:
        """Learn that the broker surely knows."""
        with self._lock:
            self._seen.acknowledged(ids)

    def acknowledged_up_to(self, number: int) -> None:
        """Learn that the broker waits for nothing up to a number."""
        with self._lock:
            self._seen.acknowledged_up_to(number)

    def waiting_since(self, time: float) -> list[Any]:
        """Return the handles of what was received before a time."""
        with self._lock:
            ends = [end for arrived, end in self._arrivals if arrived <= time]
            count = ends[-1] - self._base if ends else 0
            return [self._handles[id_] for id_ in self._ids[:count]]

    def give_up(self) -> list[Any]:
        """Return the handles of everything that is not settled: the attempt is over."""
        with self._lock:
            settled = set(self._ids[: self._settled - self._base])
            return [handle for id_, handle in self._handles.items() if id_ not in settled]

    # -- the planning thread -----------------------------------------------------------------

    @property
    def planned(self) -> int:
        """The number of the first record that is not planned."""
        return self._planned

    @property
    def has_more(self) -> bool:
        """Whether there is anything to plan."""
        with self._lock:
            return self._planned < self._end

    def plan(self, max_records: int) -> tuple[int, int]:
        """Step behind the next records, and return their numbers, the end exclusive."""
        with self._lock:
            start = self._planned
            self._planned = min(self._end, start + max_records)
            self._seen.add(self._ids[start - self._base : self._planned - self._base])
            return start, self._planned

    def settle(self, position: int) -> None:
        """Learn that a completed checkpoint holds what the records before a number did."""
        with self._lock:
            self._settled = max(self._settled, min(position, self._planned))

    def encode(self) -> bytes:
        """Return all ids that are known up to what is planned."""
        with self._lock:
            return self._seen.encode()

    @property
    def _end(self) -> int:
        return self._base + len(self._ids)
