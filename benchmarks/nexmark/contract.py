"""The request to every engine, and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from benchmarks.nexmark.events import Events
from benchmarks.nexmark.reference import verify


class Timed(TypedDict):
    """One timed run; `events` are those that the time was taken over."""

    events: int
    all_events: int
    seconds: float
    worker_mb: float | None
    jvm_mb: float | None


def verified(query: str, rows: Iterable[Sequence[Any]], events: Events) -> None:
    """Refuse to time a query whose answer is wrong."""
    verify(query, rows, events.whole.read_text().splitlines())
    print("checked", flush=True)
