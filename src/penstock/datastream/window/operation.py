"""What a windowed step does, as the graph carries it to the tasks."""

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
"""The state in which a window keeps its records, or what was folded out of them."""


@dataclass(frozen=True)
class WindowOperation:
    """Windows, when they fire, what they keep, and what is made of it."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None
    allowed_lateness: int
    late_tag: Any
    """The side output for late records, if there is one."""
    contents: StateDescriptor
    """What a window keeps: a list of its records, or what a reduce or aggregate makes of them."""
    folding: Function | None
    """The reduce or aggregate function, where it has `open` and `close`."""
    window_function: Function | None
    """What makes results of the contents; without one they are the results."""
    is_keyed: bool
    """Whether functions are told the key."""

    @property
    def user_function(self) -> Function | None:
        """Whose `open` and `close` are called: the window function, else the one that folds."""
        return self.window_function or self.folding
