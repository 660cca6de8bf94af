"""How long the values of a state live: what a user's `StateTtlConfig` comes to."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.datastream.state_ttl import StateTtlConfig, TtlCleanup, TtlUpdate, TtlVisibility

__all__ = ["Lifetime", "lifetime_of"]

_ENTRIES_PER_KEY = 5


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When values expire, and what becomes of them then."""

    millis: int
    on_read: bool
    """Whether reading prolongs a life as writing does."""
    shows_expired: bool
    in_full_snapshot: bool
    entries_per_key: int
    """How many entries a walk looks at for each key that the state was used for; 0 for none."""
    every_key: bool
    """Whether keys count for which the state was not used."""


def lifetime_of(config: StateTtlConfig | None) -> Lifetime | None:
    """Return what a configuration says, None if values do not expire."""
    if config is None or not config.is_enabled():
        return None
    cleanup = config.get_cleanup_strategies()
    walk = cleanup.get_incremental_cleanup_strategy()
    per_key = 0
    if isinstance(walk, TtlCleanup.IncrementalCleanupStrategy):
        per_key = walk.get_cleanup_size()
    elif cleanup.get_rocksdb_compact_filter_cleanup_strategy() is not None:
        per_key = _ENTRIES_PER_KEY
    return Lifetime(
        millis=config.get_ttl().to_milliseconds(),
        on_read=config.get_update_type() is TtlUpdate.OnReadAndWrite,
        shows_expired=config.get_state_visibility() is TtlVisibility.ReturnExpiredIfNotCleanedUp,
        in_full_snapshot=cleanup.in_full_snapshot(),
        entries_per_key=per_key,
        every_key=isinstance(walk, TtlCleanup.IncrementalCleanupStrategy)
        and walk.run_cleanup_for_every_record(),
    )
