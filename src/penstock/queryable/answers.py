"""Answers of the server about state. Values are as JSON has them: rows and tuples are dicts."""

from __future__ import annotations

from typing import Any

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a state."""

    key: Any
    value: Any = None
    map_key: Any = None
    """Of a map state."""
    window_start: int | None = None
    window_end: int | None = None
    window: int | None = None
    """Of state per window: a time window has start and end, a count window a number."""
    expires: int | list[int] | None = None
    """When the time-to-live ends, in milliseconds; of a list one time per element."""
    time: int | None = None
    """Of a timer: when it fires."""


class KeyResult(msgspec.Struct, frozen=True):
    """What a state has of one key."""

    key: Any
    entries: list[Entry]
    next: str | None = None
    """Cursor, if the key has more entries: pass it as `after` to a look-up of this key."""

    @property
    def value(self) -> Any:
        """The value; None if there is none. Of a map state its entries, as a dict if possible."""
        if not self.entries:
            return None
        if any(entry.map_key is not None for entry in self.entries):
            pairs = [(entry.map_key, entry.value) for entry in self.entries]
            try:
                return dict(pairs)
            except TypeError:
                return pairs
        return self.entries[0].value


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    level: str
    """The isolation level: `committed`, `latest` or `checkpoint`."""
    checkpoint: int | None = None
    """The checkpoint that was read; at `latest`, the one to which the job would fall back."""
    time: int
    """When the state was the newest one, in milliseconds since 1970."""
    age: int
    """For how long that has been, in milliseconds."""
    operator: str
    state: str
    kind: str
    type: str
    key_type: str
    sinks_committed: bool | None = None
    """Whether sinks have committed everything up to the checkpoint."""
    micro_batch: int | None = None
    """At `latest`, the micro-batch after which the state was read."""


class LookUp(_Answer, frozen=True, kw_only=True):
    """The answer to a look-up of keys, in their order."""

    keys: list[KeyResult]


class Page(_Answer, frozen=True, kw_only=True):
    """The answer to a scan: a page of entries, and where the next one begins."""

    entries: list[Entry]
    next: str | None = None
    """None at the end."""


class KnownState(msgspec.Struct, frozen=True, kw_only=True):
    """What one state has of a key."""

    operator: str
    state: str
    kind: str
    type: str
    key_type: str
    queryable: str = ""
    keys: list[KeyResult]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What all queryable states of a job have of a key, in one checkpoint."""

    job: str
    level: str
    checkpoint: int
    time: int
    age: int
    sinks_committed: bool
    states: list[KnownState]
