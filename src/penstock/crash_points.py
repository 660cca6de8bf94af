"""Crash points: named places in the code where a test can kill the process.

The protocol must survive a crash at each of them. The code calls `reach` there; unless a point is
armed, by `arm` or by the environment, that costs one look at a variable.

`PENSTOCK_CRASH_AT="<point>[:nth]"` arms a point. `PENSTOCK_CRASH_LOG` names a file to which the
name of the point is written before the process dies. `PENSTOCK_CRASH_ONCE_DIR` names a directory
that records which points have fired, so that a restarted process does not crash there again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from penstock.errors import OptionValueError

CRASH_AT = "PENSTOCK_CRASH_AT"
CRASH_LOG = "PENSTOCK_CRASH_LOG"
CRASH_ONCE_DIR = "PENSTOCK_CRASH_ONCE_DIR"


class CrashPoint(StrEnum):
    """The crash points, named by component and by what has just happened."""

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
    """A point that fires when it is reached for the nth time."""

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
            _log(point)
            self._action()


_armed: _Armed | None = None


def reach(point: CrashPoint) -> None:
    """Mark that the code has reached a point; runs the action if the point is armed for now."""
    if _armed is not None:
        _armed.reach(point)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: CrashPoint, nth: int = 1, action: Callable[[], None] = _die) -> None:
    """Make a point fire when it is reached for the nth time from now; replaces an armed one.

    The action runs on the thread that reached the point. The default is `kill -9` of this process.
    """
    global _armed
    _armed = _Armed(point, nth, action)


def disarm() -> None:
    """Disarm the armed point."""
    global _armed
    _armed = None


def arm_from_environment(environment: Mapping[str, str]) -> None:
    """Arm the point that the environment names; called when this module is first imported."""
    setting = environment.get(CRASH_AT)
    if not setting:
        return
    name, _, nth = setting.partition(":")
    if name not in set(CrashPoint) or not (nth or "1").isdecimal() or nth == "0":
        expected = f"<point>[:nth] with a point of {', '.join(CrashPoint)}"
        raise OptionValueError(CRASH_AT, setting, expected)
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


def _log(point: CrashPoint) -> None:
    path = os.environ.get(CRASH_LOG)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{point}\n")


arm_from_environment(os.environ)
