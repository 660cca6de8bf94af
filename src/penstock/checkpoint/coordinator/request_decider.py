"""Decides when a checkpoint is triggered, and which one: facts in, a decision out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RequestKind(Enum):
    """Why a checkpoint is wanted; the values are persisted."""

    STOP = "stop"
    """A savepoint after which the job ends."""
    SAVEPOINT = "savepoint"
    """A savepoint; the job continues."""
    FINAL = "final"
    """The last checkpoint of a job whose input has ended."""
    MANUAL = "manual"
    """A checkpoint that a client requested."""
    PERIODIC = "periodic"
    """A checkpoint that is due by time or by number of records."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it is triggered as a savepoint, before everything else.

        A stop with drain is FINAL, because it waits for the end of input; its checkpoint is a
        savepoint all the same, because it has a path.
        """
        return self in (RequestKind.STOP, RequestKind.SAVEPOINT)

    @property
    def ends_the_job(self) -> bool:
        """Whether the job ends with it."""
        return self in (RequestKind.STOP, RequestKind.FINAL)


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """One checkpoint that is wanted; `path` is where a savepoint goes."""

    kind: RequestKind
    id: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    """What the decision depends on; times are seconds of one clock.

    `queued` are the requests in the order they came, `pending` the kinds of pending checkpoints.
    Without `interval_s` and `records` only requests trigger anything.
    """

    interval_s: float | None
    records: int | None
    min_pause_s: float
    max_concurrent: int
    queued: tuple[CheckpointRequest, ...]
    pending: tuple[RequestKind, ...]
    last_trigger: float
    last_end: float
    records_since_trigger: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """Trigger this now, then decide again."""

    request: CheckpointRequest


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something happens, or until so many seconds have passed."""

    seconds: float | None


_ORDER = {RequestKind.STOP: 0, RequestKind.SAVEPOINT: 0, RequestKind.FINAL: 1}
_LAST = 2


def decide(facts: TriggerFacts, now: float) -> Trigger | Wait:
    """Choose what to trigger now, if anything.

    Savepoints go first and only wait for each other; then the last checkpoint, then requested
    ones, then the periodic one, which alone keeps the minimum pause.
    """
    if any(kind.ends_the_job for kind in facts.pending):
        return Wait(None)
    for request in sorted(facts.queued, key=lambda request: _ORDER.get(request.kind, _LAST)):
        if _may_run(facts, request.kind):
            return Trigger(request)
    if any(request.kind.ends_the_job for request in facts.queued):
        return Wait(None)
    return _decide_periodic(facts, now)


def _may_run(facts: TriggerFacts, kind: RequestKind) -> bool:
    savepoints = sum(pending.is_savepoint for pending in facts.pending)
    if kind.is_savepoint:
        return savepoints == 0
    return len(facts.pending) - savepoints < facts.max_concurrent


def _decide_periodic(facts: TriggerFacts, now: float) -> Trigger | Wait:
    if not _may_run(facts, RequestKind.PERIODIC):
        return Wait(None)
    pause = _remaining(facts.last_end, facts.min_pause_s, now)
    if facts.records is not None and facts.records_since_trigger >= facts.records:
        due = pause
    elif facts.interval_s is not None:
        span = max(facts.interval_s, facts.min_pause_s)
        due = max(pause, _remaining(facts.last_trigger, span, now))
    else:
        return Wait(None)
    return Wait(due) if due > 0 else Trigger(CheckpointRequest(RequestKind.PERIODIC, "periodic"))


def _remaining(since: float, span: float, now: float) -> float:
    # A clock that was set back must not delay checkpoints for as long as it was set back.
    return 0.0 if now < since else since + span - now
