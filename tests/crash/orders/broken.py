"""Sinks broken on purpose, in one rule each: what the verifier must notice.

`PENSTOCK_TEST_BREAK` names those that a driver of the orders pipeline runs with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.connectors.kafka.sink.commit_marker import CommitMarker
from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.connectors.postgres.transactions import prepared

BREAK = "PENSTOCK_TEST_BREAK"


def publish_again() -> None:
    """Publish everything, without reading the marker."""
    CommitMarker.covers = lambda *_: False  # type: ignore[method-assign]
    KafkaCommitter._delete_files = lambda *_: None  # type: ignore[method-assign]


def leave_orphans() -> None:
    """Leave alone what an attempt that died had prepared."""
    prepared._roll_back = lambda *_: None


BROKEN: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (publish_again, leave_orphans)
}


def break_as_told(environment: Mapping[str, str]) -> None:
    """Break what the environment names, if anything."""
    for name in environment.get(BREAK, "").split():
        BROKEN[name]()
