"""What reaches the coordinator: everything that happens comes to it as one of these."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from penstock.checkpoint.decider import Request
from penstock.checkpoint.metadata import CommittableState
from penstock.checkpoint.pending import StageCut, StageSnapshot
from penstock.checkpoint.store import Completed
from penstock.ids import StageId


@dataclass(frozen=True, slots=True)
class Prepared:
    """A sink has prepared output."""

    uid: str
    committables: list[CommittableState]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A stage's cut is durable."""

    cut: StageCut
    snapshot: StageSnapshot


@dataclass(frozen=True, slots=True)
class Declined:
    """A stage's cut could not be made durable."""

    cut: StageCut
    error: BaseException


@dataclass(frozen=True, slots=True)
class Committed:
    """What sinks owed up to a checkpoint is committed."""

    completed: Completed
    ends_the_job: bool


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """Sinks could not commit."""

    completed: Completed
    error: BaseException


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asks for a checkpoint or savepoint."""

    request: Request
    answer: Future[Completed]


@dataclass(frozen=True, slots=True)
class Ended:
    """A stage has published the last of its input."""

    stage: StageId


@dataclass(frozen=True, slots=True)
class Look:
    """Decide again."""


Event = Prepared | Acknowledged | Declined | Committed | CommitFailed | Asked | Ended | Look
