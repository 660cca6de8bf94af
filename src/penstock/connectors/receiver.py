"""The contract of receivers: how deliveries of a broker come in, and acknowledgements go out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.connectors.seen_ids import DeliveryId

__all__ = ["Delivery", "Receiver", "ReceiverContext"]


class Delivery(NamedTuple):
    """A message as it came.

    ``id`` is the same whenever the broker delivers this message, and never another's. Give the
    broker's own number if it counts messages up (without large gaps, or with
    :meth:`Receiver.acknowledged_up_to`), else a text. ``handle`` is what this delivery is
    acknowledged by.
    """

    id: DeliveryId
    payload: bytes
    handle: Any


@dataclass(frozen=True, slots=True)
class ReceiverContext:
    """What a receiver may know of the job it receives for.

    ``notes`` are those that :meth:`Receiver.notes` gave at the cut that is restored, empty in a
    job that begins. ``max_unacknowledged`` is how many deliveries the source takes before it
    waits for a checkpoint: the broker must allow that many.
    """

    job: str
    attempt: str
    max_unacknowledged: int
    notes: Mapping[str, str] = field(default_factory=dict)


class Receiver(ABC):
    """A connection to a broker that delivers again what was not acknowledged.

    Lives on the driver, for one attempt of the job. Calls come one at a time, but for
    :meth:`notes`. A broker that is gone for a while is waited for in here, with a warning; what is
    raised fails the attempt.
    """

    extend_after: float | None = None
    """After how many seconds to tell the broker that a delivery is still being worked on."""

    @abstractmethod
    def receive(self, limit: int, timeout: float) -> list[Delivery]:
        """Return what has come, about `limit` at most; wait for something up to `timeout` seconds.

        Deliveries of the same message may come any number of times and in any order.
        """

    @abstractmethod
    def acknowledge(self, handles: Sequence[Any]) -> bool:
        """Tell the broker to deliver these no more; return whether it surely knows.

        False makes no harm: what comes again is acknowledged again, and dropped. Called after a
        checkpoint that holds what these deliveries did is completed, so that a crash at any point
        of this is safe. A name is soon forgotten after True was returned for it.
        """

    def extend(self, handles: Sequence[Any]) -> None:  # noqa: B027
        """Tell the broker that these are still being worked on; see `extend_after`."""

    def reject(self, handles: Sequence[Any]) -> None:  # noqa: B027
        """Give these back, for the next attempt to have them at once; before :meth:`close`."""

    def acknowledged_up_to(self) -> int | None:
        """Return the number up to which the broker waits for no acknowledgement any more.

        Asked for at the start and after acknowledgements. Only for ids that are numbers.
        """
        return None

    def acknowledged_among(self, runs: Sequence[tuple[int, int]]) -> int | None:
        """Return a number in one of these runs that is a message the broker will not give again.

        Asked for once, at the start of a job that is restored, with the numbers up to
        :meth:`acknowledged_up_to` that it does not know, ends exclusive. They may be numbers that
        never come, or messages that somebody else has acknowledged, which are lost to this job.
        None if there is no such message, or nobody can tell.
        """
        return None

    def has_ended(self, waiting: int) -> bool:
        """Return whether nothing will come any more that has not come yet.

        `waiting` deliveries were received by this attempt and are not acknowledged.
        """
        return False

    def notes(self) -> dict[str, str]:
        """Return what the receiver of the next attempt must know; called by another thread."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Let go of the connection; called once, also after an error."""
