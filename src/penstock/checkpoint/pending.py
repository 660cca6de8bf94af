"""A checkpoint under way: who still has to acknowledge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from penstock.checkpoint.cut import Passing
from penstock.checkpoint.decider import Request, RequestKind
from penstock.checkpoint.metadata import CommittableState, OperatorSnapshot
from penstock.checkpoint.story import Story
from penstock.ids import CheckpointId, StageId


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    """What a stage acknowledges: its operators' state, durable, and the files that hold it."""

    operators: list[OperatorSnapshot]
    files: list[Path]
    handed_over: Callable[[], None] = lambda: None
    """Called when the coordinator holds the files: the stage need not any more."""


Owe = Callable[[str, list[CommittableState]], None]
"""Takes what a sink has prepared, by its uid, whatever becomes of the checkpoint."""


@dataclass(frozen=True, slots=True)
class StageCut:
    """What a stage hands over at a barrier: frozen, not yet durable."""

    stage: StageId
    checkpoint: CheckpointId
    files: list[Path]
    """State files the cut refers to; nobody may delete them before it is acknowledged."""
    persist: Callable[[Owe], StageSnapshot]
    """The asynchronous phase; called once, in the stage's lane, in the order of barriers.

    What it returns holds no committables: those are owed from the moment they are prepared.
    """


class Answer(Enum):
    """What an acknowledgement meant."""

    ACCEPTED = "accepted"
    DUPLICATE = "this stage has acknowledged before"
    LATE = "the checkpoint is over"


@dataclass(slots=True)
class PendingCheckpoint:
    """One checkpoint between its trigger and its end."""

    id: CheckpointId
    request: Request
    triggered: float
    expires: float
    story: Story
    waiting: set[StageId]
    passing: Passing = Passing.ALIGNED
    acknowledged: dict[StageId, StageSnapshot] = field(default_factory=dict)

    @property
    def is_savepoint(self) -> bool:
        """Whether it is written in the canonical format, for the user."""
        return self.request.path is not None

    @property
    def rolls_all(self) -> bool:
        """Whether sinks must leave nothing unfinished: nobody of this job may come back for it."""
        return self.is_savepoint or self.ends_the_job

    @property
    def ends_the_job(self) -> bool:
        """Whether the job is over once it is complete."""
        return self.request.kind in (RequestKind.FINAL, RequestKind.STOP)

    @property
    def is_complete(self) -> bool:
        """Whether all stages have acknowledged."""
        return not self.waiting

    def acknowledge(self, stage: StageId, snapshot: StageSnapshot) -> Answer:
        """Take a stage's acknowledgement."""
        if stage in self.acknowledged:
            return Answer.DUPLICATE
        self.waiting.discard(stage)
        self.acknowledged[stage] = snapshot
        return Answer.ACCEPTED

    def operators(self) -> Iterable[OperatorSnapshot]:
        """Return the state of all operators, by stage."""
        for stage in sorted(self.acknowledged):
            yield from self.acknowledged[stage].operators
