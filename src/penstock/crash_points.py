"""Named places where a test can make the process die.

Each name is a line the protocol must survive being cut off at. The code calls `reach` there;
unless a point was armed, by `arm` or by the environment, this costs one look at a variable.

`PENSTOCK_CRASH_AT="<point>[:nth]"` arms a point from outside. `PENSTOCK_CRASH_LOG` names a file
that gets the point's name before the process dies. `PENSTOCK_CRASH_ONCE_DIR` names a directory
that remembers which points fired, so that a restarted process with the same environment lives.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from penstock.errors import OptionValueError

__all__ = ["CrashPoint", "arm", "arm_from_environment", "disarm", "reach"]

CRASH_AT = "PENSTOCK_CRASH_AT"
CRASH_LOG = "PENSTOCK_CRASH_LOG"
CRASH_ONCE_DIR = "PENSTOCK_CRASH_ONCE_DIR"


class CrashPoint(StrEnum):
    """The places, by the room they are in and what has just happened there."""

    JOURNAL_BEFORE_APPEND = "journal.before-append"
    JOURNAL_AFTER_APPEND = "journal.after-append"
    COORDINATOR_TRIGGERED = "coordinator.triggered"
    STAGE_BARRIER_FORWARDED = "stage.barrier-forwarded"
    STAGE_SNAPSHOT_FROZEN = "stage.snapshot-frozen"
    STAGE_IN_FLIGHT_RECORDED = "stage.in-flight-recorded"
    STAGE_IN_FLIGHT_KEPT = "stage.in-flight-kept"
    STAGE_SNAPSHOT_DURABLE = "stage.snapshot-durable"
    COORDINATOR_ACKNOWLEDGED = "coordinator.acknowledged"
    COORDINATOR_METADATA_WRITTEN = "coordinator.metadata-written"
    COORDINATOR_COMPLETED = "coordinator.completed"
    SINK_COMMITS_STARTED = "sink.commits-started"
    SINK_COMMITTED = "sink.committed"
    SINK_COMMITS_DONE = "sink.commits-done"
    COORDINATOR_SUBSUMED = "coordinator.subsumed"
    STAGE_BEFORE_MANIFEST = "stage.before-manifest"
    STAGE_AFTER_MANIFEST = "stage.after-manifest"
    RECOVERY_ATTEMPT_WON = "recovery.attempt-won"
    RECOVERY_BEFORE_CLEANUP = "recovery.before-cleanup"
    RECOVERY_RESOLVED = "recovery.resolved"
    RECOVERY_COMMITTED = "recovery.committed"
    RECOVERY_IN_FLIGHT_RESTORED = "recovery.in-flight-restored"
    RECOVERY_STATE_LOADED = "recovery.state-loaded"
    RECOVERY_SOURCES_RESET = "recovery.sources-reset"
    SAVEPOINT_WRITTEN = "savepoint.written"
    JOB_FINISHING = "job.finishing"
    JOB_FINISHED = "job.finished"


class _Armed:
    """One point that will fire when it is reached for the nth time, and only then."""

    def __init__(self, point: CrashPoint, nth: int, action: Callable[[], None]) -> None:
        self._point = point
        self._left = nth
        self._action = action
        self._lock = threading.Lock()

    def reach(self, point: CrashPoint) -> None:
        if point is not self._point:
            return
        with self._lock:
            self._left -= 1
            fires = self._left == 0
        if fires and _first_time(point):
            _note(point)
            self._action()


_armed: _Armed | None = None


def reach(point: CrashPoint) -> None:
    """Say that this place is reached; does not return if it is armed and its turn has come."""
    if _armed is not None:
        _armed.reach(point)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: CrashPoint, nth: int = 1, action: Callable[[], None] = _die) -> None:
    """Let a point fire when it is reached for the nth time from now; takes the place of another.

    The action runs on the thread that reached the point. The default is `kill -9` of this process.
    """
    global _armed
    _armed = _Armed(point, nth, action)


def disarm() -> None:
    """Let no point fire any more."""
    global _armed
    _armed = None


def arm_from_environment(environment: Mapping[str, str]) -> None:
    """Arm what the environment names; called once, when this module is first imported."""
    given = environment.get(CRASH_AT)
    if not given:
        return
    name, _, nth = given.partition(":")
    if name not in set(CrashPoint) or not (nth or "1").isdecimal() or nth == "0":
        expected = f"<point>[:nth] with a point of {', '.join(CrashPoint)}"
        raise OptionValueError(CRASH_AT, given, expected)
    arm(CrashPoint(name), int(nth or "1"))


def _first_time(point: CrashPoint) -> bool:
    directory = os.environ.get(CRASH_ONCE_DIR)
    if not directory:
        return True
    try:
        (Path(directory) / point).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _note(point: CrashPoint) -> None:
    log = os.environ.get(CRASH_LOG)
    if log:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{point}\n")


arm_from_environment(os.environ)
