"""Sinks broken on purpose, in one rule each: what the verifier must notice.

`PENSTOCK_TEST_BREAK` names those a driver of the orders pipeline shall run with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.connectors.kafka.marker import Marker
from penstock.connectors.kafka.sink_committer import KafkaCommitter
from penstock.connectors.postgres import preparing

BREAK = "PENSTOCK_TEST_BREAK"


def publish_again() -> None:
    """Publish whatever is asked for, without a look at the marker."""
    Marker.covers = lambda *_: False  # type: ignore[method-assign]
    KafkaCommitter._forget = lambda *_: None  # type: ignore[method-assign]


def leave_orphans() -> None:
    """Leave alone what an attempt that died had prepared."""
    preparing._roll_back = lambda *_: None


BROKEN: dict[str, Callable[[], None]] = {
    rule.__name__: rule for rule in (publish_again, leave_orphans)
}


def break_as_told(environment: Mapping[str, str]) -> None:
    """Break what the environment names, if anything."""
    for name in environment.get(BREAK, "").split():
        BROKEN[name]()
