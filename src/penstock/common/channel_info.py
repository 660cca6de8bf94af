"""What can be seen of a channel of a running job."""

from __future__ import annotations

import msgspec

__all__ = ["ChannelInfo"]


class ChannelInfo(msgspec.Struct, frozen=True):
    """One channel at one moment: what waits in it to be read."""

    id: int
    name: str
    """`producer -> consumer` by the names of their steps; no two of a job are the same."""
    producer: str
    producer_uid: str
    consumer: str
    consumer_uid: str
    input: int
    """Which input of the consumer it leads to, counted from 1."""
    exchange: str
    """How its records are dealt out to the subtasks of the consumer."""
    micro_batches: int
    """Of the producer, that brought what waits."""
    records: int
    bytes: int
    barriers: list[int]
    """The checkpoints whose barriers wait in it, in order."""
    held_at: int | None
    """The checkpoint at whose barrier the consumer holds it for its other inputs."""
    is_full: bool
    """Whether its producer waits before its next micro-batch because of it."""
    has_ended: bool
    """Whether its producer has sent the end of input."""
