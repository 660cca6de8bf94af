"""Decides whether and when a failed job is restarted: Flink's restart strategies."""
# ruff: noqa: D102 - the base class documents these methods

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from penstock.common.config import recovery_options as options
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.errors import ConfigurationError, PenstockError


@dataclass(frozen=True, slots=True)
class Restart:
    """One earlier restart: when the job failed, when it was to start again, and the failure."""

    failed_at: float
    restart_at: float
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Restart the job after so many seconds.

    `counts` is false for a failure during the wait for a restart: it belongs to the failure before
    and is not added to the history.
    """

    seconds: float
    counts: bool = True


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave the job failed; the reason names the setting that says so."""

    reason: str


@dataclass(frozen=True, slots=True)
class History:
    """What later decisions need of the counted restarts of a driver, however many there were."""

    restarts: int = 0
    last: Restart | None = None
    identical: int = 0
    """How many of the newest restarts in a row have the fingerprint of the last."""
    in_a_row: int = 0
    """How many there were since the job last ran for long enough to count from zero again."""
    failures: tuple[float, ...] = ()
    """When the job failed, as far back as a failure rate is measured; newest last."""


Random = Callable[[], float]


class RestartStrategy(ABC):
    """Decides about one failure from the restarts before it; has no state."""

    @property
    def quiet_s(self) -> float:
        """How long a job must run without a failure so that restarts are counted from zero."""
        return math.inf

    @property
    def rate_interval_s(self) -> float:
        """How long failures are remembered one by one."""
        return 0.0

    @abstractmethod
    def decide(self, history: History, now: float, random: Random) -> RestartAfter | GiveUp:
        """Decide about a failure that happens now; `random` returns numbers from 0 to 1."""

    def after(self, history: History, restart: Restart) -> History:
        """Return the history after one more counted restart."""
        last, failed_at = history.last, restart.failed_at
        is_identical = last is not None and last.fingerprint == restart.fingerprint
        recent = (f for f in history.failures if failed_at - f <= self.rate_interval_s)
        return History(
            restarts=history.restarts + 1,
            last=restart,
            identical=history.identical + 1 if is_identical else 1,
            in_a_row=self.in_a_row(history, failed_at) + 1,
            failures=(*recent, failed_at) if self.rate_interval_s else (),
        )

    def in_a_row(self, history: History, now: float) -> int:
        """Return how many restarts in a row there were before a failure that happens now."""
        last = history.last
        is_quiet = last is not None and now - last.restart_at >= self.quiet_s
        return 0 if is_quiet else history.in_a_row


@dataclass(frozen=True, slots=True)
class NoRestart(RestartStrategy):
    """Never restarts."""

    def decide(self, history: History, now: float, random: Random) -> RestartAfter | GiveUp:
        return GiveUp(
            f"no restarts are configured ({options.RESTART_STRATEGY.key} is none, "
            "or unset in a job without checkpoints)"
        )


@dataclass(frozen=True, slots=True)
class FixedDelay(RestartStrategy):
    """Restarts a fixed number of times."""

    attempts: int
    delay_s: float

    def decide(self, history: History, now: float, random: Random) -> RestartAfter | GiveUp:
        if history.restarts < self.attempts:
            return RestartAfter(self.delay_s)
        return GiveUp(f"{options.FIXED_DELAY_ATTEMPTS.key} allows {_restarts(self.attempts)}")


@dataclass(frozen=True, slots=True)
class FailureRate(RestartStrategy):
    """Restarts unless there are too many failures within an interval."""

    max_failures: int
    interval_s: float
    delay_s: float

    @property
    def rate_interval_s(self) -> float:
        return self.interval_s

    def decide(self, history: History, now: float, random: Random) -> RestartAfter | GiveUp:
        if sum(now - f <= self.interval_s for f in history.failures) < self.max_failures:
            return RestartAfter(self.delay_s)
        return GiveUp(
            f"{self.max_failures + 1} failures within {self.interval_s:g} s, and "
            f"{options.FAILURE_RATE_MAX_FAILURES.key} is {self.max_failures}"
        )


@dataclass(frozen=True, slots=True)
class ExponentialDelay(RestartStrategy):
    """Restarts with growing delays, until the job has run for a while without a failure.

    Gives up only if the number of restarts in a row is limited.
    """

    initial_s: float
    maximum_s: float
    multiplier: float
    jitter: float
    reset_after_s: float
    attempts: int | None

    @property
    def quiet_s(self) -> float:
        return self.reset_after_s

    def decide(self, history: History, now: float, random: Random) -> RestartAfter | GiveUp:
        last = history.last
        if last is not None and last.failed_at <= now <= last.restart_at:
            return RestartAfter(last.restart_at - now, counts=False)
        before = self.in_a_row(history, now)
        if self.attempts is not None and before >= self.attempts:
            return GiveUp(f"{options.ATTEMPTS_BEFORE_RESET.key} allows {_restarts(self.attempts)}")
        return RestartAfter(self._backoff(before, random))

    def _backoff(self, restarts: int, random: Random) -> float:
        backoff = self.initial_s
        for _ in range(restarts):
            # Jitter can at most double it, so nothing above twice the maximum matters.
            if backoff > 2 * self.maximum_s:
                break
            backoff *= self.multiplier
        offset = backoff * self.jitter * (2 * random() - 1)
        return max(self.initial_s, min(backoff + offset, self.maximum_s))


def decide_restart(
    strategy: RestartStrategy,
    error: BaseException,
    history: History,
    now: float,
    random: Random,
    max_identical: int = 0,
) -> RestartAfter | GiveUp:
    """Decide about a job that failed with an error now.

    An error that a restart cannot repair, or that means that another driver runs the job, is never
    followed by a restart; neither is the same failure in `max_identical` consecutive attempts,
    whether they completed checkpoints or not. 0 is no limit.
    """
    for cause in _causes(error):
        if cause.is_permanent:
            return GiveUp(f"a restart cannot repair {type(cause).__name__}")
    fingerprint = fingerprint_of(error)
    last = history.last
    is_same = last is not None and last.fingerprint == fingerprint
    identical = history.identical + 1 if is_same else 1
    if fingerprint and 0 < max_identical <= identical:
        return GiveUp(
            f"the same failure, of the same data, ended {identical} attempts in a row, and "
            f"{options.MAX_IDENTICAL_FAILURES.key} is {max_identical}"
        )
    return strategy.decide(history, now, random)


def fingerprint_of(error: BaseException) -> str:
    """Return the fingerprint of a failure, empty if it may have gone in the next attempt."""
    return next((c.fingerprint for c in _causes(error) if c.fingerprint), "")


def _causes(error: BaseException) -> Iterator[PenstockError]:
    """Yield an error and its causes, as far as they are of this package."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, PenstockError):
            yield cause
        cause = cause.__cause__


def read_restart_strategy(configuration: Configuration, *, checkpointing: bool) -> RestartStrategy:
    """Read the strategy; the default of a job with checkpoints is `exponential-delay`.

    Raises:
        ConfigurationError: two settings contradict each other, or a value is invalid.
    """
    chosen = read(configuration, options.RESTART_STRATEGY)
    match chosen or ("exponential-delay" if checkpointing else "none"):
        case "none":
            return NoRestart()
        case "fixed-delay":
            return FixedDelay(
                read(configuration, options.FIXED_DELAY_ATTEMPTS),
                _seconds(configuration, options.FIXED_DELAY_DELAY),
            )
        case "failure-rate":
            return FailureRate(
                read(configuration, options.FAILURE_RATE_MAX_FAILURES),
                _seconds(configuration, options.FAILURE_RATE_INTERVAL),
                _seconds(configuration, options.FAILURE_RATE_DELAY),
            )
    return _read_exponential_delay(configuration)


def _read_exponential_delay(configuration: Configuration) -> ExponentialDelay:
    initial = _seconds(configuration, options.INITIAL_BACKOFF)
    maximum = _seconds(configuration, options.MAX_BACKOFF)
    if initial > maximum:
        message = (
            f"{options.INITIAL_BACKOFF.key} must not be longer than {options.MAX_BACKOFF.key}; "
            f"got {initial:g} s and {maximum:g} s"
        )
        raise ConfigurationError(message)
    return ExponentialDelay(
        initial,
        maximum,
        read(configuration, options.BACKOFF_MULTIPLIER),
        read(configuration, options.JITTER_FACTOR),
        _seconds(configuration, options.RESET_BACKOFF_THRESHOLD),
        read(configuration, options.ATTEMPTS_BEFORE_RESET),
    )


def _seconds(configuration: Configuration, option: ConfigOption[timedelta]) -> float:
    return read(configuration, option).total_seconds()


def _restarts(number: int) -> str:
    return "1 restart" if number == 1 else f"{number} restarts"
