"""Runs jobs on Spark, and reads their state with it; the only package that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.state.session import read_state as read_state
    from penstock.spark.state.session import register as register

_STATE = ("read_state", "register")


def __getattr__(name: str) -> Any:
    """Import what reads state on first use: tasks of jobs do not need it."""
    if name in _STATE:
        from penstock.spark.state import session

        return getattr(session, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
