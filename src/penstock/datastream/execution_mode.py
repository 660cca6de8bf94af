"""The runtime execution modes."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """When a program's results are emitted."""

    STREAMING = "STREAMING"
    """As they change: a rolling aggregate emits for every record."""
    BATCH = "BATCH"
    """At the end: keys are processed one after the other, an aggregate emits once per key."""
    AUTOMATIC = "AUTOMATIC"
    """BATCH if all sources are bounded, else STREAMING."""
