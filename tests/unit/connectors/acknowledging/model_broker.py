"""A broker in memory that delivers again what was not acknowledged; every mishap is a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.acknowledging.seen_ids import DeliveryId
from penstock.connectors.acknowledging.source import (
    AcknowledgingSource,
    Delivery,
    Receiver,
    ReceiverContext,
)


class ModelBroker:
    """A model of a broker: it redelivers messages until they are acknowledged."""

    def __init__(self, *, numbered: bool) -> None:
        self.numbered = numbered
        self.published = 0
        self.waiting: list[int] = []
        self.delivered: list[int] = []
        self.acknowledged: list[int] = []
        self.on_the_wire: list[Delivery] = []
        self.deliveries = 0
        self.last_handles: list[tuple[int, int]] = []
        self.loses_acks = False
        self.is_bounded = False
        self.delivers_again_when_connected = False
        self.extended: list[Any] = []
        self.connections = 0
        self.lives: list[str] = []

    def publish(self, count: int) -> None:
        self.waiting += range(self.published, self.published + count)
        self.published += count

    def send(self, limit: int) -> None:
        """Deliver messages; they arrive when they are received."""
        limit = max(limit, 0)
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.delivered += taken
        for number in taken:
            self.deliveries += 1
            handle = (number, self.deliveries)
            self.on_the_wire.append(Delivery(self.id_of(number), b"m%d" % number, handle))

    def receive(self, limit: int) -> list[Delivery]:
        self.send(limit - len(self.on_the_wire))
        arrived, self.on_the_wire = self.on_the_wire, []
        return arrived

    def id_of(self, number: int) -> DeliveryId:
        # With gaps, as in a stream that is filtered.
        return number * 3 + number % 2 if self.numbered else f"id-{number}"

    def acknowledge(self, handles: Sequence[tuple[int, int]]) -> bool:
        if self.loses_acks:
            return False
        self.last_handles = list(handles)
        for number, _ in handles:
            for place in (self.delivered, self.waiting):
                if number in place:
                    place.remove(number)
            if number not in self.acknowledged:
                self.acknowledged.append(number)
        return True

    def floor(self) -> int:
        unfinished = {*self.waiting, *self.delivered}
        lowest = min(unfinished, default=self.published)
        return int(self.id_of(lowest)) - 1

    def lose_patience(self, order: Sequence[int]) -> None:
        """Deliver everything again that was not acknowledged, in an order like that."""
        again, self.delivered = self.delivered, []
        for index in order:
            if again:
                self.waiting.insert(index % (len(self.waiting) + 1), again.pop(index % len(again)))
        self.waiting += again

    def forget_acks(self, count: int) -> None:
        """Crash, and restart without the last acknowledgements it had confirmed."""
        lost = self.acknowledged[-count:] if count else []
        del self.acknowledged[len(self.acknowledged) - len(lost) :]
        self.delivered += lost


class ModelReceiver(Receiver):
    def __init__(self, broker: ModelBroker, extend_after: float | None = None) -> None:
        self._broker = broker
        broker.connections += 1
        broker.on_the_wire.clear()
        if broker.delivers_again_when_connected:
            broker.lose_patience(range(7))
        self.extend_after = extend_after

    def receive(self, limit: int, timeout: float) -> list[Delivery]:
        return self._broker.receive(limit)

    def acknowledge(self, handles: Sequence[Any]) -> bool:
        return self._broker.acknowledge(handles)

    def extend(self, handles: Sequence[Any]) -> None:
        self._broker.extended += handles

    def reject(self, handles: Sequence[Any]) -> None:
        for number, _ in handles:
            if number in self._broker.delivered:
                self._broker.delivered.remove(number)
                self._broker.waiting.append(number)

    def has_ended(self, waiting: int) -> bool:
        broker = self._broker
        return broker.is_bounded and not broker.waiting and len(broker.delivered) <= waiting

    def acknowledged_up_to(self) -> int | None:
        return self._broker.floor() if self._broker.numbered else None

    def acknowledged_among(self, runs: Sequence[tuple[int, int]]) -> int | None:
        forgotten = {int(self._broker.id_of(number)) for number in self._broker.acknowledged}
        return min(
            (number for start, end in runs for number in forgotten if start <= number < end),
            default=None,
        )

    def close(self) -> None:
        self._broker.connections -= 1


class ModelSource(AcknowledgingSource):
    def __init__(self, broker: ModelBroker) -> None:
        self.broker = broker
        self.extend_after: float | None = None
        self.contexts: list[ReceiverContext] = []

    def receiver(self, context: ReceiverContext) -> Receiver:
        self.contexts.append(context)  # of the driver's copy
        return ModelReceiver(self.broker, self.extend_after)

    def deserialize(self, payload: bytes) -> str:
        return payload.decode()
