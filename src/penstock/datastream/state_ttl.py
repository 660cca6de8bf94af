"""Time-to-live of state, under Flink's names."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from penstock.common.time import Duration, Time

__all__ = ["StateTtlConfig"]


class TtlUpdate(Enum):
    """Which accesses renew the time-to-live of a value."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class TtlVisibility(Enum):
    """Whether an expired value that was not cleaned up yet is returned."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlClock(Enum):
    """The time characteristic of the time-to-live."""

    ProcessingTime = 0


class TtlCleanup:
    """Flink's settings of the cleanup of expired values."""

    class Strategies(Enum):
        """Flink's cleanup strategies."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    class CleanupStrategy:
        """The settings of a strategy."""

    class EmptyCleanupStrategy(CleanupStrategy):
        """A strategy without settings."""

    class IncrementalCleanupStrategy(CleanupStrategy):
        """Checks some values on each access."""

        def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
            if cleanup_size <= 0:
                message = (
                    f"cleanup_size of incremental cleanup must be positive; got {cleanup_size!r}"
                )
                raise ValueError(message)
            self._cleanup_size = cleanup_size
            self._for_every_record = run_cleanup_for_every_record

        def get_cleanup_size(self) -> int:
            """Return how many values are checked."""
            return self._cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            """Tell whether records without state access trigger it too."""
            return self._for_every_record

    class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
        """Drops expired values in RocksDB compactions."""

        def __init__(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Duration | None = None,
        ) -> None:
            self._query_time_after_num_entries = query_time_after_num_entries
            self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

        def get_query_time_after_num_entries(self) -> int:
            """Return after how many entries the time is updated."""
            return self._query_time_after_num_entries

        def get_periodic_compaction_time(self) -> Duration:
            """Return the age after which a file is compacted."""
            return self._periodic_compaction_time

    EMPTY_STRATEGY: ClassVar[CleanupStrategy] = EmptyCleanupStrategy()

    def __init__(
        self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool
    ) -> None:
        self._strategies = strategies
        self._in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Tell whether the backend's default strategy is enabled."""
        return self._in_background

    def in_full_snapshot(self) -> bool:
        """Tell whether full snapshots omit expired values."""
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> CleanupStrategy | None:
        """Return the settings of incremental cleanup, None if it is disabled."""
        default = self.IncrementalCleanupStrategy(5, False) if self._in_background else None
        return self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP, default)

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> CleanupStrategy | None:
        """Return the settings of cleanup in compactions, None if it is disabled."""
        default = self.RocksdbCompactFilterCleanupStrategy(1000) if self._in_background else None
        return self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)


class StateTtlConfig:
    """The time-to-live configuration of a state; created by :meth:`new_builder`."""

    UpdateType = TtlUpdate
    StateVisibility = TtlVisibility
    TtlTimeCharacteristic = TtlClock
    CleanupStrategies = TtlCleanup

    def __init__(
        self,
        update_type: TtlUpdate,
        state_visibility: TtlVisibility,
        ttl_time_characteristic: TtlClock,
        ttl: Time,
        cleanup_strategies: TtlCleanup,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time | Duration) -> StateTtlConfig.Builder:
        """Create a builder for a time-to-live."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> TtlUpdate:
        """Return which accesses renew the time-to-live."""
        return self._update_type

    def get_state_visibility(self) -> TtlVisibility:
        """Return whether expired values are returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Return the time-to-live."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlClock:
        """Return the time characteristic."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Tell whether values expire at all."""
        return self._update_type is not TtlUpdate.Disabled

    def get_cleanup_strategies(self) -> TtlCleanup:
        """Return the cleanup strategies."""
        return self._cleanup_strategies

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<{self._update_type}, {self._state_visibility}, "
            f"{self._ttl_time_characteristic}, ttl={self._ttl}>"
        )

    class Builder:
        """Collects the settings of a :class:`StateTtlConfig`."""

        def __init__(self, ttl: Time | Duration) -> None:
            self.set_ttl(ttl)
            self._update_type = TtlUpdate.OnCreateAndWrite
            self._state_visibility = TtlVisibility.NeverReturnExpired
            self._ttl_time_characteristic = TtlClock.ProcessingTime
            self._in_background = True
            self._strategies: dict[TtlCleanup.Strategies, TtlCleanup.CleanupStrategy] = {}

        def set_update_type(self, update_type: TtlUpdate) -> StateTtlConfig.Builder:
            """Set which accesses renew the time-to-live."""
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Renew the time-to-live on writes, which is the default."""
            return self.set_update_type(TtlUpdate.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Renew the time-to-live on reads too."""
            return self.set_update_type(TtlUpdate.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: TtlVisibility) -> StateTtlConfig.Builder:
            """Set whether expired values are returned."""
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return expired values until they are cleaned up."""
            return self.set_state_visibility(TtlVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired values, which is the default."""
            return self.set_state_visibility(TtlVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: TtlClock
        ) -> StateTtlConfig.Builder:
            """Set the time characteristic."""
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Use processing time, which is the default."""
            return self.set_ttl_time_characteristic(TtlClock.ProcessingTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Omit expired values from full snapshots."""
            strategy = TtlCleanup.Strategies.FULL_STATE_SCAN_SNAPSHOT
            self._strategies[strategy] = TtlCleanup.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Check some values on each access."""
            strategy = TtlCleanup.Strategies.INCREMENTAL_CLEANUP
            self._strategies[strategy] = TtlCleanup.IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Duration | None = None,
        ) -> StateTtlConfig.Builder:
            """Drops expired values in RocksDB compactions."""
            strategy = TtlCleanup.Strategies.ROCKSDB_COMPACTION_FILTER
            self._strategies[strategy] = TtlCleanup.RocksdbCompactFilterCleanupStrategy(
                query_time_after_num_entries, periodic_compaction_time
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Disable the backend's default strategy."""
            self._in_background = False
            return self

        def set_ttl(self, ttl: Time | Duration) -> StateTtlConfig.Builder:
            """Set the time-to-live."""
            if isinstance(ttl, Duration):
                ttl = Time.milliseconds(ttl.to_millis())
            if not isinstance(ttl, Time) or ttl.to_milliseconds() <= 0:
                message = f"a time-to-live is a Time of at least a millisecond; got {ttl!r}"
                raise ValueError(message)
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            """Return the configuration."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                TtlCleanup(self._strategies, self._in_background),
            )
