"""The contract of receivers: connections that receive messages and acknowledge them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.connectors.acknowledging.seen_ids import DeliveryId


class Delivery(NamedTuple):
    """One delivery of a message.

    ``id`` is the same for every delivery of this message, and unique to it. Use the broker's own
    sequence number if it has one (without large gaps, or with
    :meth:`Receiver.acknowledged_up_to`), otherwise a string. ``handle`` acknowledges this delivery.
    """

    id: DeliveryId
    payload: bytes
    handle: Any


@dataclass(frozen=True, slots=True)
class ReceiverContext:
    """The job that a receiver works for.

    ``notes`` are those that :meth:`Receiver.notes` returned for the restored snapshot, empty in a
    job that starts fresh. ``max_unacknowledged`` is how many deliveries the source accepts before
    it waits for a checkpoint: the broker must allow that many.
    """

    job: str
    attempt: str
    max_unacknowledged: int
    notes: Mapping[str, str] = field(default_factory=dict)


class Receiver(ABC):
    """A connection to a broker that redelivers messages until they are acknowledged.

    It exists on the driver for one attempt of the job. Except :meth:`notes`, its methods are called
    by one thread. It reconnects to a broker that is unreachable for a while, with a warning; an
    exception fails the attempt.
    """

    extend_after: float | None = None
    """After how many seconds to tell the broker that a delivery is still in progress."""

    @abstractmethod
    def receive(self, limit: int, timeout: float) -> list[Delivery]:
        """Return about `limit` deliveries at most; wait up to `timeout` seconds for the first.

        A message may be delivered any number of times, in any order.
        """

    @abstractmethod
    def acknowledge(self, handles: Sequence[Any]) -> bool:
        """Acknowledge deliveries; return whether the broker has confirmed it.

        False does no harm: redeliveries are acknowledged again, and dropped. Called after a
        checkpoint that includes these deliveries is complete, so that a crash at any point is
        safe. An id that is a string is soon forgotten after True was returned for it.
        """

    def extend(self, handles: Sequence[Any]) -> None:  # noqa: B027
        """Tell the broker that these are still in progress; see `extend_after`."""

    def reject(self, handles: Sequence[Any]) -> None:  # noqa: B027
        """Return deliveries for immediate redelivery to the next attempt; before :meth:`close`."""

    def acknowledged_up_to(self) -> int | None:
        """Return the number up to which every message is acknowledged.

        Called at the start and after acknowledgements. Only for ids that are numbers.
        """
        return None

    def acknowledged_among(self, ranges: Sequence[tuple[int, int]]) -> int | None:
        """Return a number in one of these ranges whose message will not be redelivered.

        Called once, at the start of a restored job, with the numbers up to
        :meth:`acknowledged_up_to` that it does not know, ends exclusive. They may be unused, or
        messages that another client has acknowledged, which are lost to this job. None if there is
        no such message, or it cannot be determined.
        """
        return None

    def has_ended(self, waiting: int) -> bool:
        """Return whether everything has been delivered.

        `waiting` deliveries were received by this attempt and are not acknowledged.
        """
        return False

    def notes(self) -> dict[str, str]:
        """Return what the next attempt's receiver must know; called by another thread."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Close the connection; called once, also after an error."""
