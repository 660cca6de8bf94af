"""When a checkpoint is triggered, and which one: facts in, a decision out.

Nothing here looks at a clock, waits or remembers; the coordinator asks after every event.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Request", "RequestKind", "Trigger", "TriggerFacts", "Wait", "decide"]


class RequestKind(Enum):
    """Why a checkpoint is wanted."""

    STOP = "stop"
    """A savepoint behind which the job ends."""
    SAVEPOINT = "savepoint"
    """A savepoint; the job goes on."""
    FINAL = "final"
    """The last checkpoint of a job whose input has ended."""
    MANUAL = "manual"
    """A checkpoint asked for by hand."""
    PERIODIC = "periodic"
    """A checkpoint that is due by time or by records."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it belongs to the user and not to the job."""
        return self in (RequestKind.STOP, RequestKind.SAVEPOINT)

    @property
    def ends_the_job(self) -> bool:
        """Whether nothing comes behind it."""
        return self in (RequestKind.STOP, RequestKind.FINAL)


@dataclass(frozen=True, slots=True)
class Request:
    """One checkpoint somebody wants; `path` is where a savepoint shall go."""

    kind: RequestKind
    id: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    """All that the decision depends on; times are seconds of one clock.

    `queued` are the requests in the order they came, `in_flight` the kinds of what is pending.
    Without `interval_s` and `records` nothing is triggered that nobody asked for.
    """

    interval_s: float | None
    records: int | None
    min_pause_s: float
    max_concurrent: int
    queued: tuple[Request, ...]
    in_flight: tuple[RequestKind, ...]
    last_trigger: float
    last_end: float
    records_since_trigger: int
    all_sources_running: bool = True


@dataclass(frozen=True, slots=True)
class Trigger:
    """Trigger this now, then decide again."""

    request: Request


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something happens, or until so many seconds have passed."""

    seconds: float | None


_ORDER = {RequestKind.STOP: 0, RequestKind.SAVEPOINT: 0, RequestKind.FINAL: 1}
_LAST = 2


def decide(facts: TriggerFacts, now: float) -> Trigger | Wait:
    """Choose what to trigger now, if anything.

    Savepoints go first and only wait for each other; then the last checkpoint, then those
    asked for by hand, then the periodic one. Only the periodic one keeps the minimum pause.
    """
    if not facts.all_sources_running or any(kind.ends_the_job for kind in facts.in_flight):
        return Wait(None)
    for request in sorted(facts.queued, key=lambda request: _ORDER.get(request.kind, _LAST)):
        if _has_room(facts, request.kind):
            return Trigger(request)
    if any(request.kind.ends_the_job for request in facts.queued):
        return Wait(None)
    return _decide_periodic(facts, now)


def _has_room(facts: TriggerFacts, kind: RequestKind) -> bool:
    savepoints = sum(pending.is_savepoint for pending in facts.in_flight)
    if kind.is_savepoint:
        return savepoints == 0
    return len(facts.in_flight) - savepoints < facts.max_concurrent


def _decide_periodic(facts: TriggerFacts, now: float) -> Trigger | Wait:
    if not _has_room(facts, RequestKind.PERIODIC):
        return Wait(None)
    pause = _remaining(facts.last_end, facts.min_pause_s, now)
    if facts.records is not None and facts.records_since_trigger >= facts.records:
        due = pause
    elif facts.interval_s is not None:
        span = max(facts.interval_s, facts.min_pause_s)
        due = max(pause, _remaining(facts.last_trigger, span, now))
    else:
        return Wait(None)
    return Wait(due) if due > 0 else Trigger(Request(RequestKind.PERIODIC, "periodic"))


def _remaining(since: float, span: float, now: float) -> float:
    # A clock that was set back must not hold checkpoints up for as long as it was set back.
    return 0.0 if now < since else since + span - now
