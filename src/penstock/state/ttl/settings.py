"""The settings of a state's time-to-live, derived from a user's `StateTtlConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.datastream.state_ttl import StateTtlConfig, TtlCleanup, TtlUpdate, TtlVisibility

_ENTRIES_PER_KEY = 5


@dataclass(frozen=True, slots=True)
class TtlSettings:
    """When values expire, and how expired values are handled."""

    millis: int
    on_read: bool
    """Whether reading a value renews its time-to-live as writing does."""
    shows_expired: bool
    in_full_snapshot: bool
    """Whether savepoints leave expired values out."""
    entries_per_key: int
    """How many entries the cleanup looks at for each key that used the state; 0 for no cleanup."""
    every_key: bool
    """Whether keys that did not use the state count for the cleanup too."""


def ttl_settings_of(config: StateTtlConfig | None) -> TtlSettings | None:
    """Return the settings of a configuration, None if values do not expire."""
    if config is None or not config.is_enabled():
        return None
    strategies = config.get_cleanup_strategies()
    incremental = strategies.get_incremental_cleanup_strategy()
    per_key, every_key = 0, False
    if isinstance(incremental, TtlCleanup.IncrementalCleanupStrategy):
        per_key = incremental.get_cleanup_size()
        every_key = incremental.run_cleanup_for_every_record()
    elif strategies.get_rocksdb_compact_filter_cleanup_strategy() is not None:
        per_key = _ENTRIES_PER_KEY
    return TtlSettings(
        millis=config.get_ttl().to_milliseconds(),
        on_read=config.get_update_type() is TtlUpdate.OnReadAndWrite,
        shows_expired=config.get_state_visibility() is TtlVisibility.ReturnExpiredIfNotCleanedUp,
        in_full_snapshot=strategies.in_full_snapshot(),
        entries_per_key=per_key,
        every_key=every_key,
    )
