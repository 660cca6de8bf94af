"""The definition of a windowed step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.datastream.runtime_context import Function
from penstock.datastream.state import StateDescriptor
from penstock.datastream.window.assigners import WindowAssigner
from penstock.datastream.window.evictors import Evictor
from penstock.datastream.window.trigger import Trigger

__all__ = ["WINDOW_CONTENTS", "WindowOperation"]

WINDOW_CONTENTS = "window-contents"
"""The name of the state with a window's records, or with their aggregate."""


@dataclass(frozen=True)
class WindowOperation:
    """Assigner, trigger, evictor and functions of a windowed step."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None
    allowed_lateness: int
    late_tag: Any
    """The side output for late records, if any."""
    contents: StateDescriptor
    """The state of a window: a list of its records, or the result of reduce or aggregate."""
    aggregating_function: Function | None
    """The reduce or aggregate function, if it has `open` and `close`."""
    window_function: Function | None
    """Computes results from the contents; without one they are the results."""
    is_keyed: bool
    """Whether functions get the key."""

    @property
    def user_function(self) -> Function | None:
        """The function whose `open` and `close` are called."""
        return self.window_function or self.aggregating_function
