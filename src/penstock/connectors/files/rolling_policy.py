"""Rolling policies: when a file sink begins a new part file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.connectors.contracts.builder_checks import require


class RollingPolicy:
    """How large and how old a part file may become."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> DefaultRollingPolicy:
        """Limit a part's size in bytes, and its age and inactivity in milliseconds."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """End every part at the next checkpoint."""
        return OnCheckpointRollingPolicy()


@dataclass(frozen=True, slots=True)
class DefaultRollingPolicy(RollingPolicy):
    """Begins a new part when the current one is too large, too old or inactive for too long."""

    part_size: int
    rollover_interval: int
    inactivity_interval: int

    def __post_init__(self) -> None:
        lowest = min(self.part_size, self.rollover_interval, self.inactivity_interval)
        require(lowest > 0, f"a rolling policy needs positive limits; got {self!r}", ValueError)


@dataclass(frozen=True, slots=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """Begins a new part only at a checkpoint."""


class Piece(NamedTuple):
    """A staged file that goes into a part: its path, its size, when it was published, its CRC-32.

    Encoded in sink state. The time is wall-clock time, because a piece may outlive the process. The
    checksum is None in the state of older versions.
    """

    path: str
    size: int
    time: float
    crc: int | None = None


def roll(pieces: Iterable[Piece], policy: RollingPolicy) -> list[list[Piece]]:
    """Divide pieces into parts, in order."""
    parts: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        size += piece.size
        if not parts or _must_roll(parts[-1], piece, size, policy):
            parts.append([])
            size = piece.size
        parts[-1].append(piece)
    return parts


def roll_at_barrier(
    pieces: Iterable[Piece], policy: RollingPolicy, now: float, *, flush: bool
) -> tuple[list[list[Piece]], list[Piece]]:
    """Divide pieces into parts that are complete at a barrier, and the pieces of an open part."""
    parts = roll(pieces, policy)
    if parts and not flush and not _is_complete(parts[-1], policy, now):
        return parts[:-1], parts[-1]
    return parts, []


def _is_complete(part: list[Piece], policy: RollingPolicy, now: float) -> bool:
    """Whether a part ends at this barrier."""
    if not isinstance(policy, DefaultRollingPolicy):
        return True
    return sum(piece.size for piece in part) >= policy.part_size or _is_old(part, policy, now)


def _must_roll(part: list[Piece], piece: Piece, size: int, policy: RollingPolicy) -> bool:
    """Whether a part has to end before another piece, with which it would have this size."""
    if not isinstance(policy, DefaultRollingPolicy):
        return False
    return size > policy.part_size or _is_old(part, policy, piece.time)


def _is_old(part: list[Piece], policy: DefaultRollingPolicy, now: float) -> bool:
    # A piece from the future was written before the clock was set back, and must not wait.
    age, idle = abs(now - part[0].time), abs(now - part[-1].time)
    return age * 1000 >= policy.rollover_interval or idle * 1000 >= policy.inactivity_interval
