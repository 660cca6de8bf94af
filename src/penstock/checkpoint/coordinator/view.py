"""The checkpoint coordinator as region loops see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.barriers.alignment import BarrierHandling
from penstock.checkpoint.event_log import CheckpointEventLog
from penstock.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class LiveCheckpoint:
    """What stages need to know of a checkpoint that is neither complete nor aborted."""

    barrier_handling: BarrierHandling
    triggered: float
    flush: bool
    """Whether sinks must leave no unfinished output."""
    savepoint_path: str | None
    """Where state goes in the canonical format; None for a checkpoint."""
    event_log: CheckpointEventLog


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """The coordinator as region loops see it; immutable, and replaced as a whole."""

    checkpoints: Mapping[CheckpointId, LiveCheckpoint] = field(default_factory=dict)
    barriers: Mapping[CheckpointId, BarrierHandling] = field(default_factory=dict)
    """How to handle the barriers of these checkpoints, in the order of their ids."""
    sources_paused: bool = False
    """Whether sources must read nothing, because the job is being stopped."""
    draining: bool = False
    """Whether sources must end where they are."""
    last_checkpoint: CheckpointId | None = None
    """The checkpoint with which the job ends, unless it fails; nothing is processed after it."""

    def next_barrier(self, after: CheckpointId) -> CheckpointId | None:
        """Return the next barrier that a source stage has to inject, None if it is up to date."""
        return next((n for n in self.barriers if n > after), None)
