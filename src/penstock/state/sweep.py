"""Walks over stored values that expire, some at a time, for those that nobody asks for again.

Where a walk stands is kept in the registry, so it goes on in whatever process comes next. What it
finds goes into the delta of the micro-batch: a lost try has removed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import msgspec

from penstock.state.backends.store import StateStore
from penstock.state.stamps import Prune
from penstock.state.table import TableTtl

__all__ = ["Swept", "sweep"]

PASSES_PER_LIFETIME = 8
"""Walks begin no more often: what has expired may stay for this part of its lifetime."""


@dataclass(slots=True)
class Swept:
    """What a walk found, by key: what is left of a value, None if nothing is."""

    ttl: TableTtl
    found: dict[bytes, bytes | None] = field(default_factory=dict)


def sweep(
    store: StateStore, prefix: bytes, ttl: TableTtl, prune: Prune, now: int, at_most: int
) -> Swept:
    """Look at some entries of a table, from where the last call came to."""
    if not ttl.cursor:
        if now < ttl.due:
            return Swept(ttl)
        ttl = msgspec.structs.replace(ttl, began=now, oldest=now)
    swept = Swept(ttl)
    start, stop = prefix + ttl.cursor, (int.from_bytes(prefix, "big") + 1).to_bytes(2, "big")
    dead, oldest, count, key = now - ttl.millis, ttl.oldest, 0, b""
    for key, data in islice(store.scan_between(start, stop), at_most):
        count += 1
        left, stamp = prune(data, dead)
        if left is not data:
            swept.found[key] = left
        if left is not None and stamp < oldest:
            oldest = stamp
    if count == at_most:
        # The least key behind the last one.
        cursor = key[len(prefix) :] + b"\0"
        swept.ttl = msgspec.structs.replace(ttl, cursor=cursor, oldest=oldest)
    else:
        due = max(oldest + ttl.millis, ttl.began + ttl.millis // PASSES_PER_LIFETIME)
        swept.ttl = msgspec.structs.replace(ttl, cursor=b"", due=due)
    return swept
