"""PyFlink's restart strategies."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config import recovery_options as options
from penstock.common.configuration import Configuration
from penstock.common.text.durations import format_duration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration:
    """The keys of one restart strategy, for `StreamExecutionEnvironment.set_restart_strategy`."""

    def __init__(self, settings: Configuration, description: str) -> None:
        self._settings = settings
        self._description = description

    def get_description(self) -> str:
        """Return a description."""
        return self._description

    def to_configuration(self) -> Configuration:
        """Return the strategy as configuration keys."""
        return Configuration(self._settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestartStrategyConfiguration) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)


class RestartStrategies:
    """Creates restart strategies; times are milliseconds or a `timedelta`."""

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """No restarts."""

        def __init__(self) -> None:
            settings = Configuration().set(options.RESTART_STRATEGY, "none")
            super().__init__(settings, "Restart deactivated.")

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A total number of restarts."""

        def __init__(
            self, restart_attempts: int, delay_between_attempts: int | timedelta = 10_000
        ) -> None:
            self._attempts, self._delay = restart_attempts, _duration(delay_between_attempts)
            delay = format_duration(self._delay)
            settings = Configuration().set(options.RESTART_STRATEGY, "fixed-delay")
            settings.set(options.FIXED_DELAY_ATTEMPTS, restart_attempts)
            settings.set(options.FIXED_DELAY_DELAY, delay)
            super().__init__(
                settings,
                f"Restart with fixed delay ({delay}). #{restart_attempts} restart attempts.",
            )

        def get_restart_attempts(self) -> int:
            """Return the number of restarts."""
            return self._attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before each restart."""
            return self._delay

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts up to a number of failures per interval."""

        def __init__(
            self,
            max_failure_rate: int,
            failure_interval: int | timedelta,
            delay_between_attempts_interval: int | timedelta,
        ) -> None:
            self._rate = max_failure_rate
            self._interval = _duration(failure_interval)
            self._delay = _duration(delay_between_attempts_interval)
            interval, delay = format_duration(self._interval), format_duration(self._delay)
            settings = Configuration().set(options.RESTART_STRATEGY, "failure-rate")
            settings.set(options.FAILURE_RATE_MAX_FAILURES, max_failure_rate)
            settings.set(options.FAILURE_RATE_INTERVAL, interval)
            settings.set(options.FAILURE_RATE_DELAY, delay)
            super().__init__(
                settings,
                f"Failure rate restart with maximum of {max_failure_rate} failures within "
                f"interval {interval} and fixed delay {delay}.",
            )

        def get_max_failure_rate(self) -> int:
            """Return the maximum number of failures per interval."""
            return self._rate

        def get_failure_interval(self) -> timedelta:
            """Return the interval."""
            return self._interval

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before each restart."""
            return self._delay

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The configured restart strategy."""

        def __init__(self) -> None:
            super().__init__(Configuration(), "Cluster level default restart strategy")

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Do not restart."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Use the configured restart strategy."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> FixedDelayRestartStrategyConfiguration:
        """Restart a total number of times."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> FailureRateRestartStrategyConfiguration:
        """Restart up to `failure_rate` failures per interval."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )


def _duration(time: int | timedelta) -> timedelta:
    return time if isinstance(time, timedelta) else timedelta(milliseconds=time)
