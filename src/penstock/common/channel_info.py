"""Information about a channel of a running job."""

from __future__ import annotations

import msgspec

__all__ = ["ChannelInfo"]


class ChannelInfo(msgspec.Struct, frozen=True):
    """The contents of a channel at one time."""

    id: int
    name: str
    """`producer -> consumer` by the names of their steps; unique in a job."""
    producer: str
    producer_uid: str
    consumer: str
    consumer_uid: str
    input: int
    """The input of the consumer, counted from 1."""
    exchange: str
    """How its records are distributed to the subtasks of the consumer."""
    micro_batches: int
    """The number of the producer's micro-batches in the channel."""
    records: int
    bytes: int
    barriers: list[int]
    """The checkpoints whose barriers are in the channel, in order."""
    blocked_at: int | None = msgspec.field(name="held_at")
    """The checkpoint at whose barrier the consumer blocks it, to align its other inputs."""
    is_full: bool
    """Whether it backpressures its producer."""
    has_ended: bool
    """Whether its producer has sent the end of input."""
