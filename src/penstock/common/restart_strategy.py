"""Restart strategies as a program names them: PyFlink's names for some configuration keys."""

from __future__ import annotations

from datetime import timedelta

from penstock.common import recovery_options as options
from penstock.common.configuration import Configuration
from penstock.common.durations import format_duration

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration:
    """The keys of one restart strategy, for `StreamExecutionEnvironment.set_restart_strategy`."""

    def __init__(self, settings: Configuration, description: str) -> None:
        self._settings = settings
        self._description = description

    def get_description(self) -> str:
        """Return the strategy in words."""
        return self._description

    def to_configuration(self) -> Configuration:
        """Return the strategy as configuration keys."""
        return Configuration(self._settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestartStrategyConfiguration) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)


class RestartStrategies:
    """Makes restart strategies; times are milliseconds or a `timedelta`."""

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The first failure is the last."""

        def __init__(self) -> None:
            settings = Configuration().set(options.RESTART_STRATEGY, "none")
            super().__init__(settings, "Restart deactivated.")

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A number of restarts in all."""

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
            """Return how many restarts there are."""
            return self._attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the time before each."""
            return self._delay

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts while failures are not too many in an interval."""

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
            """Return how many failures an interval may have."""
            return self._rate

        def get_failure_interval(self) -> timedelta:
            """Return the interval."""
            return self._interval

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the time before each restart."""
            return self._delay

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """What the configuration says."""

        def __init__(self) -> None:
            super().__init__(Configuration(), "Cluster level default restart strategy")

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Let the first failure be the last."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Leave it to the configuration."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> FixedDelayRestartStrategyConfiguration:
        """Restart a number of times in all."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> FailureRateRestartStrategyConfiguration:
        """Restart while there are not more failures than `failure_rate` within an interval."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )


def _duration(given: int | timedelta) -> timedelta:
    return given if isinstance(given, timedelta) else timedelta(milliseconds=given)
