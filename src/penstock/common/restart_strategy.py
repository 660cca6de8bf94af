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

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Let the first failure be the last."""
        settings = Configuration().set(options.RESTART_STRATEGY, "none")
        return RestartStrategyConfiguration(settings, "Restart deactivated.")

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Leave it to the configuration."""
        return RestartStrategyConfiguration(
            Configuration(), "Cluster level default restart strategy"
        )

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> RestartStrategyConfiguration:
        """Restart a number of times in all."""
        delay = _text(delay_between_attempts)
        settings = Configuration().set(options.RESTART_STRATEGY, "fixed-delay")
        settings.set(options.FIXED_DELAY_ATTEMPTS, restart_attempts)
        settings.set(options.FIXED_DELAY_DELAY, delay)
        return RestartStrategyConfiguration(
            settings, f"Restart with fixed delay ({delay}). #{restart_attempts} restart attempts."
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> RestartStrategyConfiguration:
        """Restart while there are not more failures than `failure_rate` within an interval."""
        interval, delay = _text(failure_interval), _text(delay_interval)
        settings = Configuration().set(options.RESTART_STRATEGY, "failure-rate")
        settings.set(options.FAILURE_RATE_MAX_FAILURES, failure_rate)
        settings.set(options.FAILURE_RATE_INTERVAL, interval)
        settings.set(options.FAILURE_RATE_DELAY, delay)
        return RestartStrategyConfiguration(
            settings,
            f"Failure rate restart with maximum of {failure_rate} failures within interval "
            f"{interval} and fixed delay {delay}.",
        )


def _text(duration: int | timedelta) -> str:
    if isinstance(duration, timedelta):
        return format_duration(duration)
    return f"{duration} ms"
