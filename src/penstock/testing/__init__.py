"""Tools for testing programs: jobs without Spark, scripted sources and failures, verification."""

from penstock.crash_points import CrashPoint, arm, disarm, reach
from penstock.testing.inline import run_inline
from penstock.testing.manual_clock import ManualClock
from penstock.testing.scripted_failures import ScriptedError, ScriptedFailures
from penstock.testing.scripted_source import Burst, Idle, Pause, ScriptedSource
from penstock.testing.verification import (
    VerificationResult,
    compare,
    finished_files,
    read_lines,
    verify,
)

__all__ = [
    "Burst",
    "CrashPoint",
    "Idle",
    "ManualClock",
    "Pause",
    "ScriptedError",
    "ScriptedFailures",
    "ScriptedSource",
    "VerificationResult",
    "arm",
    "compare",
    "disarm",
    "finished_files",
    "reach",
    "read_lines",
    "run_inline",
    "verify",
]
