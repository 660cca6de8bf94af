"""Options of how a failed job comes back, and how a dead one is noticed; Flink's keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.common.config_options import ConfigOption
from penstock.common.option_kinds import (
    NON_NEGATIVE_DURATION,
    NON_NEGATIVE_INTEGER,
    POSITIVE_DURATION,
    POSITIVE_INTEGER,
    at_least,
    choice,
    number,
)

__all__ = ["RECOVERY_OPTIONS"]

_ONE_MILLISECOND = at_least(timedelta(milliseconds=1), 'a duration of at least "1 ms"')

RESTART_STRATEGY: ConfigOption[str | None] = ConfigOption(
    "restart-strategy.type",
    choice(
        "none",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
        aliases={
            "off": "none",
            "disable": "none",
            "fixeddelay": "fixed-delay",
            "failurerate": "failure-rate",
            "exponentialdelay": "exponential-delay",
        },
    ),
    None,
    "When a failed job is started again; exponential-delay with checkpoints, none without.",
    fallback_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    NON_NEGATIVE_INTEGER,
    1,
    "Restarts of a job in all.",
)
FIXED_DELAY_DELAY = ConfigOption(
    "restart-strategy.fixed-delay.delay",
    NON_NEGATIVE_DURATION,
    timedelta(seconds=1),
    "Time from a failure to the restart.",
)
FAILURE_RATE_MAX_FAILURES = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    POSITIVE_INTEGER,
    1,
    "Failures within the interval that are followed by a restart.",
)
FAILURE_RATE_INTERVAL = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    POSITIVE_DURATION,
    timedelta(minutes=1),
    "Time within which failures are counted.",
)
FAILURE_RATE_DELAY = ConfigOption(
    "restart-strategy.failure-rate.delay",
    NON_NEGATIVE_DURATION,
    timedelta(seconds=1),
    "Time from a failure to the restart.",
)
INITIAL_BACKOFF = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    _ONE_MILLISECOND,
    timedelta(seconds=1),
    "Time from the first failure to the restart.",
)
MAX_BACKOFF = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    _ONE_MILLISECOND,
    timedelta(minutes=1),
    "Longest time from a failure to the restart.",
)
BACKOFF_MULTIPLIER = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    number("a number above 1", lambda given: 1 < given < float("inf")),
    1.5,
    "What the time grows by from one failure to the next.",
)
JITTER_FACTOR = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    number("a number from 0 to 1", lambda given: 0 <= given <= 1),
    0.1,
    "Part of the time that is added or taken away at random.",
)
RESET_BACKOFF_THRESHOLD = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    _ONE_MILLISECOND,
    timedelta(hours=1),
    "How long a job must run without a failure to begin with the initial time again.",
)
ATTEMPTS_BEFORE_RESET: ConfigOption[int | None] = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    POSITIVE_INTEGER,
    None,
    "Restarts without such a quiet time before the job fails for good; no limit if unset.",
)
HEARTBEAT_INTERVAL = ConfigOption(
    "heartbeat.interval",
    POSITIVE_DURATION,
    timedelta(seconds=10),
    "How often a driver writes down that it lives.",
)
HEARTBEAT_TIMEOUT = ConfigOption(
    "heartbeat.timeout",
    POSITIVE_DURATION,
    timedelta(seconds=50),
    "Silence after which another driver may take the job over.",
)
EXCEPTION_HISTORY = ConfigOption(
    "web.exception-history-size",
    NON_NEGATIVE_INTEGER,
    16,
    "Failures of a job that are kept for reading.",
)

RECOVERY_OPTIONS: tuple[ConfigOption[Any], ...] = (
    RESTART_STRATEGY,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY_DELAY,
    FAILURE_RATE_MAX_FAILURES,
    FAILURE_RATE_INTERVAL,
    FAILURE_RATE_DELAY,
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    BACKOFF_MULTIPLIER,
    JITTER_FACTOR,
    RESET_BACKOFF_THRESHOLD,
    ATTEMPTS_BEFORE_RESET,
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    EXCEPTION_HISTORY,
)
