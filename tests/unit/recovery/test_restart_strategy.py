"""Restart strategies; the tables follow Flink's own tests of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration, Types
from penstock.errors import (
    BadCheckpointError,
    CommitFailedError,
    ConfigurationError,
    FencedError,
    InvalidJobError,
    OperatorStateTypeMismatchError,
    OptionValueError,
    PenstockError,
    StateTooLargeError,
    StateTypeChangedError,
    StateTypeMismatchError,
    StepError,
    TextDecodingError,
    UnstableKeyError,
    UserFunctionError,
)
from penstock.recovery.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    History,
    NoRestart,
    Restart,
    RestartAfter,
    RestartStrategy,
    decide_restart,
    fingerprint_of,
    read_restart_strategy,
)


def middle() -> float:
    return 0.5


def play(strategy: RestartStrategy, failures: list[float]) -> list[float | None]:
    """Return the delay decided at each failure, None where it gave up."""
    history = History()
    delays: list[float | None] = []
    for now in failures:
        decision = strategy.decide(history, now, middle)
        if isinstance(decision, GiveUp):
            delays.append(None)
            break
        delays.append(decision.seconds)
        if decision.counts:
            history = strategy.after(history, Restart(now, now + decision.seconds))
    return delays


def history_of(strategy: RestartStrategy, restarts: Iterable[Restart]) -> History:
    return reduce(strategy.after, restarts, History())


def strategy_of(pairs: dict[str, object], *, checkpointing: bool = True) -> RestartStrategy:
    return read_restart_strategy(Configuration.from_dict(pairs), checkpointing=checkpointing)


def test_the_default_depends_on_checkpoints() -> None:
    assert strategy_of({}) == ExponentialDelay(1.0, 60.0, 1.5, 0.1, 3600.0, None)
    assert strategy_of({}, checkpointing=False) == NoRestart()


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("key", ["restart-strategy.type", "restart-strategy"])
@pytest.mark.parametrize(
    ("spelled", "strategy"),
    [
        ("none", NoRestart()),
        ("off", NoRestart()),
        ("disable", NoRestart()),
        ("fixed-delay", FixedDelay(1, 1.0)),
        ("fixeddelay", FixedDelay(1, 1.0)),
        ("failure-rate", FailureRate(1, 60.0, 1.0)),
        ("exponential-delay", ExponentialDelay(1.0, 60.0, 1.5, 0.1, 3600.0, None)),
    ],
)
def test_strategies_are_chosen_by_name_with_flinks_defaults(
    spelled: str, strategy: RestartStrategy, key: str, checkpointing: bool
) -> None:
    assert strategy_of({key: spelled}, checkpointing=checkpointing) == strategy


def test_all_settings_of_a_strategy_are_read() -> None:
    fixed = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "10 s",
    }
    assert strategy_of(dict(fixed)) == FixedDelay(3, 10.0)
    rate = {
        "restart-strategy.type": "failure-rate",
        "restart-strategy.failure-rate.max-failures-per-interval": 3,
        "restart-strategy.failure-rate.failure-rate-interval": "5 min",
        "restart-strategy.failure-rate.delay": "10 s",
    }
    assert strategy_of(dict(rate)) == FailureRate(3, 300.0, 10.0)
    prefix = "restart-strategy.exponential-delay."
    exponential = {
        f"{prefix}initial-backoff": "100 ms",
        f"{prefix}max-backoff": "10 s",
        f"{prefix}backoff-multiplier": 2,
        f"{prefix}jitter-factor": 0,
        f"{prefix}reset-backoff-threshold": "1 min",
        f"{prefix}attempts-before-reset-backoff": 8,
    }
    assert strategy_of(dict(exponential)) == ExponentialDelay(0.1, 10.0, 2.0, 0.0, 60.0, 8)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("type", "sometimes"),
        ("fixed-delay.attempts", -1),
        ("failure-rate.max-failures-per-interval", 0),
        ("failure-rate.failure-rate-interval", "0 ms"),
        ("exponential-delay.initial-backoff", "0 ms"),
        ("exponential-delay.backoff-multiplier", 1),
        ("exponential-delay.backoff-multiplier", "nan"),
        ("exponential-delay.jitter-factor", 1.1),
        ("exponential-delay.attempts-before-reset-backoff", 0),
    ],
)
def test_values_out_of_range_are_refused(key: str, value: object) -> None:
    kind = key.split(".")[0]
    pairs = {"restart-strategy.type": kind} if "." in key else {}
    with pytest.raises(OptionValueError):
        strategy_of({**pairs, f"restart-strategy.{key}": value})


def test_a_first_delay_above_the_longest_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must not be longer than"):
        strategy_of({"restart-strategy.exponential-delay.initial-backoff": "2 min"})


def test_no_restart_gives_up_and_names_the_key() -> None:
    decision = NoRestart().decide(History(), 0.0, middle)
    assert isinstance(decision, GiveUp)
    assert "restart-strategy.type" in decision.reason


@pytest.mark.parametrize(
    ("strategy", "failures", "delays"),
    [
        (FixedDelay(0, 1.0), [0], [None]),
        (FixedDelay(2, 1.5), [0, 10, 1e9], [1.5, 1.5, None]),
        # One too many within the interval ends it; the edge of the interval is inside.
        (FailureRate(1, 60.0, 1.0), [0, 60], [1.0, None]),
        (FailureRate(1, 60.0, 1.0), [0, 60.1, 121], [1.0, 1.0, 1.0]),
        (FailureRate(3, 60.0, 1.0), [0, 1, 2, 3], [1.0, 1.0, 1.0, None]),
        (FailureRate(3, 60.0, 1.0), [0, 1, 2, 60.5, 60.9], [1.0, 1.0, 1.0, 1.0, None]),
    ],
)
def test_strategies_with_a_fixed_delay(
    strategy: RestartStrategy, failures: list[float], delays: list[float | None]
) -> None:
    assert play(strategy, failures) == delays


EXPONENTIAL = ExponentialDelay(1.0, 10.0, 2.0, 0.0, 100.0, None)


@pytest.mark.parametrize(
    ("strategy", "failures", "delays"),
    [
        (EXPONENTIAL, [0, 10, 20, 30, 40, 60], [1, 2, 4, 8, 10, 10]),
        # Quiet for as long as the threshold since the restart: from the beginning again.
        (EXPONENTIAL, [0, 10, 112, 120], [1, 2, 1, 2]),
        (EXPONENTIAL, [0, 10, 111, 120], [1, 2, 4, 8]),
        # A failure during the wait belongs to the one before.
        (EXPONENTIAL, [0, 10, 10.5, 12, 20], [1, 2, 1.5, 0, 4]),
        (ExponentialDelay(1.0, 10.0, 2.0, 0.0, 100.0, 2), [0, 10, 20], [1, 2, None]),
        # A quiet time resets the count, too.
        (
            ExponentialDelay(1.0, 10.0, 2.0, 0.0, 100.0, 2),
            [0, 10, 200, 210, 220],
            [1, 2, 1, 2, None],
        ),
    ],
)
def test_delays_grow_until_the_job_ran_quietly(
    strategy: RestartStrategy, failures: list[float], delays: list[float | None]
) -> None:
    assert play(strategy, failures) == delays


@pytest.mark.parametrize(
    ("drawn", "restarts", "delay"),
    [(0.0, 0, 1.0), (1.0, 0, 1.1), (0.0, 1, 1.8), (1.0, 1, 2.2), (1.0, 9, 10.0), (0.0, 9, 10.0)],
)
def test_jitter_stays_within_its_part_and_the_bounds(
    drawn: float, restarts: int, delay: float
) -> None:
    strategy = ExponentialDelay(1.0, 10.0, 2.0, 0.1, 100.0, None)
    before = (Restart(20.0 * n, 20.0 * n + 10) for n in range(restarts))
    history = history_of(strategy, before)
    decision = strategy.decide(history, 20.0 * restarts, lambda: drawn)
    assert isinstance(decision, RestartAfter)
    assert decision.seconds == pytest.approx(delay)


def test_years_of_failures_overflow_nothing() -> None:
    before = (Restart(2.0 * n, 2.0 * n + 1) for n in range(50_000))
    history = history_of(EXPONENTIAL, before)
    assert EXPONENTIAL.decide(history, 100_001.0, middle) == RestartAfter(10.0)


def test_a_clock_that_was_set_back_does_not_swallow_a_failure() -> None:
    history = history_of(EXPONENTIAL, [Restart(1000.0, 1001.0)])
    decision = EXPONENTIAL.decide(history, 10.0, middle)
    assert decision == RestartAfter(2.0)


@given(
    st.lists(st.floats(0, 500), max_size=12),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(1.01, 5),
)
def test_every_delay_lies_between_the_first_and_the_longest(
    gaps: list[float], jitter: float, drawn: float, multiplier: float
) -> None:
    strategy = ExponentialDelay(1.0, 30.0, multiplier, jitter, 100.0, None)
    history = History()
    now = 0.0
    for gap in gaps:
        decision = strategy.decide(history, now, lambda: drawn)
        assert isinstance(decision, RestartAfter)
        assert 1.0 <= decision.seconds <= 30.0
        history = strategy.after(history, Restart(now, now + decision.seconds))
        now += decision.seconds + 0.001 + gap


@pytest.mark.parametrize(
    "strategy",
    [
        FixedDelay(2**31 - 1, 0.0),
        FailureRate(1_000, 60.0, 0.0),
        ExponentialDelay(1.0, 30.0, 1.5, 0.0, 100.0, None),
    ],
)
def test_the_history_of_a_job_that_fails_forever_stays_small(strategy: RestartStrategy) -> None:
    sizes = []
    history = History()
    for number in range(10_000):
        restart = Restart(10.0 * number, 10.0 * number + 1, f"failure {number % 3}")
        history = strategy.after(history, restart)
        sizes.append(len(pickle.dumps(history)))
    assert history.restarts == 10_000
    assert max(sizes) < 1_000


def test_failures_are_counted_exactly_however_many_there_were() -> None:
    restarts = [Restart(2.0 * n, 2.0 * n + 1) for n in range(30_000)]
    for strategy in (FixedDelay(30_001, 0.0), ExponentialDelay(1.0, 9.0, 1.5, 0.0, 9.0, 30_001)):
        history = history_of(strategy, restarts)
        assert isinstance(strategy.decide(history, 60_000.5, middle), RestartAfter)
        one_more = strategy.after(history, Restart(60_000.5, 60_001.5))
        assert isinstance(strategy.decide(one_more, 60_003.0, middle), GiveUp)


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("no"),
        OptionValueError("key", "value", "another"),
        InvalidJobError("no sink"),
        FencedError("job", "a1", "a2"),
        BadCheckpointError(7, "torn", 6),
        CommitFailedError("files", "impossible", 1, "LostPendingFileError: gone"),
        StateTypeMismatchError("", "x", Types.INT(), "count", "seen", "a"),
        OperatorStateTypeMismatchError("", "x", Types.INT(), "count", "seen"),
        StateTypeChangedError("count", "seen", "LONG", "INT", "too small"),
        StateTooLargeError("count", "seen", 2, 1),
        UnstableKeyError("key_by", object()),
        StepError("parse", 1, "of another type", is_permanent=True),
    ],
)
def test_what_comes_again_is_not_restarted(error: PenstockError) -> None:
    decision = decide_restart(FixedDelay(9, 1.0), error, History(), 0.0, middle)
    assert isinstance(decision, GiveUp)
    assert type(error).__name__ in decision.reason
    wrapper = PenstockError("wrapped")
    wrapper.__cause__ = error
    assert decide_restart(FixedDelay(9, 1.0), wrapper, History(), 0.0, middle) == decision


@pytest.mark.parametrize("kind", ["failed", "unknown"])
def test_a_commit_that_may_succeed_later_is_left_to_the_strategy(kind: str) -> None:
    error = CommitFailedError("topic", kind, 1, "no broker answers")
    assert decide_restart(FixedDelay(1, 2.0), error, History(), 0.0, middle) == RestartAfter(2.0)


def test_any_other_error_is_left_to_the_strategy() -> None:
    error = PenstockError("a lost worker")
    error.__cause__ = error
    assert decide_restart(FixedDelay(1, 2.0), error, History(), 0.0, middle) == RestartAfter(2.0)
    once = history_of(FixedDelay(1, 2.0), [Restart(0.0, 2.0)])
    assert isinstance(decide_restart(FixedDelay(1, 2.0), error, once, 9.0, middle), GiveUp)


def failure(fingerprint: str) -> UserFunctionError:
    return UserFunctionError("parse", 1, "ValueError: no", "Traceback ...", fingerprint)


def attempts_until_the_end(failures: list[PenstockError], limit: int) -> int | None:
    """Return how many attempts there are when each fails with the next of some errors."""
    history = History()
    for number, error in enumerate(failures, 1):
        strategy = FixedDelay(1000, 0.0)
        decision = decide_restart(strategy, error, history, float(number), middle, limit)
        if isinstance(decision, GiveUp):
            assert "penstock.recovery.max-identical-failures is" in decision.reason
            return number
        restart = Restart(float(number), float(number), fingerprint_of(error))
        history = strategy.after(history, restart)
    return None


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_the_same_failure_in_consecutive_attempts_ends_the_job(limit: int) -> None:
    assert attempts_until_the_end([failure("a")] * 20, limit) == limit


def test_a_limit_of_zero_leaves_every_failure_to_the_strategy() -> None:
    assert attempts_until_the_end([failure("a")] * 20, 0) is None


def test_another_failure_starts_the_count_again() -> None:
    failures = [failure("a"), failure("a"), failure("b"), failure("a"), failure("a"), failure("a")]
    assert attempts_until_the_end([*failures], 3) == 6
    outage = PenstockError("no broker answers")
    assert attempts_until_the_end([failure("a"), outage] * 10, 2) is None


def test_an_outage_that_ends_every_attempt_is_left_to_the_strategy() -> None:
    assert attempts_until_the_end([failure("")] * 20, 3) is None
    assert attempts_until_the_end([PenstockError("no broker answers")] * 20, 3) is None


def test_data_that_cannot_be_read_ends_the_job_like_a_record() -> None:
    unreadable = TextDecodingError("/in/a.txt", 7, "utf-8", "invalid start byte")
    assert attempts_until_the_end([unreadable] * 20, 3) == 3
    wrapper = PenstockError("wrapped")
    wrapper.__cause__ = unreadable
    assert attempts_until_the_end([wrapper] * 20, 3) == 3
