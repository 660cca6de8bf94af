"""Incremental cleanup of expired values, a part of a table per micro-batch.

It finds values that are not read again. The position of the cleanup is kept in the registry, so
that any process continues it. What it removes is part of the micro-batch's delta: a failed try has
removed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import msgspec

from penstock.state.backends.store import StateStore
from penstock.state.registry.meta_info import TtlMetaInfo
from penstock.state.ttl.timestamps import Prune

PASSES_PER_TTL = 8
"""Passes begin no more often: an expired value may stay for this fraction of its time-to-live."""


@dataclass(slots=True)
class Cleanup:
    """The result of a cleanup: by key, what remains of a value, None for nothing."""

    ttl: TtlMetaInfo
    found: dict[bytes, bytes | None] = field(default_factory=dict)


def clean_up(
    store: StateStore, prefix: bytes, ttl: TtlMetaInfo, prune: Prune, now: int, at_most: int
) -> Cleanup:
    """Find what expired among the next ``at_most`` entries, from where the last call stopped."""
    if not ttl.cursor:
        if now < ttl.due:
            return Cleanup(ttl)
        ttl = msgspec.structs.replace(ttl, began=now, oldest=now)
    cleanup = Cleanup(ttl)
    start, stop = prefix + ttl.cursor, (int.from_bytes(prefix, "big") + 1).to_bytes(2, "big")
    expired_until, oldest, count, key = now - ttl.millis, ttl.oldest, 0, b""
    for key, data in islice(store.scan_between(start, stop), at_most):
        count += 1
        kept, timestamp = prune(data, expired_until)
        if kept is not data:
            cleanup.found[key] = kept
        if kept is not None and timestamp < oldest:
            oldest = timestamp
    if count == at_most:
        # The least key after the last one.
        cursor = key[len(prefix) :] + b"\0"
        cleanup.ttl = msgspec.structs.replace(ttl, cursor=cursor, oldest=oldest)
    else:
        due = max(oldest + ttl.millis, ttl.began + ttl.millis // PASSES_PER_TTL)
        cleanup.ttl = msgspec.structs.replace(ttl, cursor=b"", due=due)
    return cleanup
