"""Options of restarts, heartbeats and failure history, with Flink's keys."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option_kinds import (
    NON_NEGATIVE_DURATION,
    NON_NEGATIVE_INTEGER,
    POSITIVE_DURATION,
    POSITIVE_INTEGER,
    at_least,
    choice,
    number,
)
from penstock.common.config_options import ConfigOption

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
    "When a failed job is restarted; exponential-delay with checkpoints, none without.",
    fallback_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS = ConfigOption(
    "restart-strategy.fixed-delay.attempts",
    NON_NEGATIVE_INTEGER,
    1,
    "Total number of restarts of a job.",
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
    "Maximum number of failures within the interval.",
)
FAILURE_RATE_INTERVAL = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    POSITIVE_DURATION,
    timedelta(minutes=1),
    "Interval in which failures are counted.",
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
    number("a number above 1", lambda factor: 1 < factor < float("inf")),
    1.5,
    "Factor by which the backoff grows from one failure to the next.",
)
JITTER_FACTOR = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    number("a number from 0 to 1", lambda fraction: 0 <= fraction <= 1),
    0.1,
    "Fraction of the backoff that is added or subtracted at random.",
)
RESET_BACKOFF_THRESHOLD = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    _ONE_MILLISECOND,
    timedelta(hours=1),
    "How long a job must run without a failure to reset the backoff.",
)
ATTEMPTS_BEFORE_RESET: ConfigOption[int | None] = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    POSITIVE_INTEGER,
    None,
    "Restarts without a reset of the backoff before the job fails for good; no limit if unset.",
)
MAX_IDENTICAL_FAILURES = ConfigOption(
    "penstock.recovery.max-identical-failures",
    NON_NEGATIVE_INTEGER,
    10,
    "Consecutive attempts in which the same step may fail on the same record, in the same line of "
    "the program, before the job fails for good; 0 for no limit.",
)
HEARTBEAT_INTERVAL = ConfigOption(
    "heartbeat.interval",
    POSITIVE_DURATION,
    timedelta(seconds=10),
    "How often a driver writes a heartbeat.",
)
HEARTBEAT_TIMEOUT = ConfigOption(
    "heartbeat.timeout",
    POSITIVE_DURATION,
    timedelta(seconds=50),
    "Time without a heartbeat after which another driver may take the job over.",
)
EXCEPTION_HISTORY = ConfigOption(
    "web.exception-history-size",
    NON_NEGATIVE_INTEGER,
    16,
    "Number of failures of a job that are kept.",
)
MAX_EXCEPTION_TEXT = ConfigOption(
    "penstock.history.max-exception-text",
    POSITIVE_INTEGER,
    32_768,
    "Characters of an exception message or traceback in the history; the middle of a longer one is "
    "cut.",
)
