"""Extracts the root cause from Spark's report of a failed job."""

from __future__ import annotations

import re

_PYTHON_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?P<frames>.*?)(?:\n\s*(?:at |Driver stacktrace)|\Z)",
    re.DOTALL,
)
_LOST_SHUFFLE = re.compile(
    r"has failed the maximum allowable number of times.*?failure reason:\s*(?P<reason>[^\n]+)",
    re.DOTALL,
)


def root_cause(report: str) -> str:
    """Return the cause in one line, without stack traces."""
    lost = _LOST_SHUFFLE.search(report)
    if lost is not None:
        return f"shuffle files are lost: {lost['reason'].strip()}"
    traceback = _PYTHON_TRACEBACK.search(report)
    if traceback is not None:
        lines = [line for line in traceback["frames"].splitlines() if re.match(r"[A-Za-z]", line)]
        if lines:
            return lines[-1].strip()
    for line in report.splitlines():
        if "Python worker" in line or "ExecutorLost" in line or "Lost task" in line:
            return line.strip()
    return report.splitlines()[0] if report else "no reason given"
