"""What is asked of one keyed state, and the answer: they travel between processes as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

MOST_KEYS = 100
"""In one query."""
MOST_ENTRIES = 1000
"""In one answer, for each key that was asked for."""
DEFAULT_ENTRIES = 100


class StateQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Look up keys, or scan a page of keys if none is given."""

    operator: str
    """The uid or the name of an operator."""
    state: str
    """The name of a state, or its queryable name."""
    keys: list[str] = []
    """As users type them; see `are_json`."""
    map_key: str | None = None
    """Only this entry of a map."""
    are_json: bool = False
    """Whether all keys are JSON; otherwise a text needs no quotes."""
    prefix: str | None = None
    """Scan only keys that are texts and begin so."""
    after: str | None = None
    """The cursor of the answer before."""
    limit: int = DEFAULT_ENTRIES
    with_expired: bool = False
    """Whether values whose time-to-live is over are wanted, too."""
    only_queryable: bool = True
    """Whether the state must be queryable."""


class KeyEntries(msgspec.Struct, frozen=True):
    """What a state has of one key: nothing, one entry, or one for each map key or window."""

    key: Any
    entries: list[dict[str, Any]]
    next: str | None = None
    """A cursor, if there are more entries than the limit."""


class StateAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a state has, and what the state is."""

    operator: str
    """The uid of its operator."""
    state: str
    kind: str
    type: str
    key_type: str
    queryable: str = ""
    """Its queryable name."""
    keys: list[KeyEntries] | None = None
    """Of a look-up, in the order of the keys."""
    entries: list[dict[str, Any]] | None = None
    """Of a scan."""
    next: str | None = None
    """The cursor of the next page of a scan, if there is one."""


class RunningState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a driver: the state after a micro-batch, or the error that there is instead."""

    answer: StateAnswer | None = None
    time: float = 0.0
    """When the micro-batch was published."""
    read: float = 0.0
    """When the driver read the state; it was the newest one then."""
    batch: int = 0
    """The number of the micro-batch."""
    checkpoint: int | None = None
    """The last completed checkpoint, to which the job would fall back."""
    error: str = ""
    """The name of the class of the error."""
