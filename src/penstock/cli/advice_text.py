"""Formats advice on the checkpoint interval as text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from penstock.checkpoint.settings import Guarantee
from penstock.cli.output import duration, size, table
from penstock.client.job_advice import JobAdvice
from penstock.errors.base import plural
from penstock.models.advice import Bound, BoundKind, Outcome, Verdict
from penstock.models.fitting.estimate import Estimate
from penstock.models.fitting.proportion import Proportion
from penstock.models.levers import Input, Lever
from penstock.models.load import CapacitySource
from penstock.models.round_interval import format_interval

_SHARES = (Input.LOAD, Input.OVERHEAD)


def advice_text(facts: JobAdvice, name: str | None) -> str:
    """Return all that is known about a job with this name, the answer first."""
    lines = [] if facts.job is None else [f"job {name!r} ({facts.job})"]
    lines += [_headline(facts), ""]
    if facts.configuration:
        lines += [*(f"{k}: {v}" for k, v in facts.configuration.items()), ""]
    if facts.advice.levers:
        lines += ["Change one of these:", *(_lever(one) for one in facts.advice.levers), ""]
    bounds = [_bound(bound, facts) for bound in facts.advice.bounds]
    lines += [table(bounds, ()), ""]
    outcomes = list(_outcomes(facts))
    if outcomes:
        lines += [table(outcomes, ("NOW", "RECOMMENDED")), ""]
    lines += [table(list(_inputs(facts)), ("VALUE", "RANGE")), ""]
    lines += _consistency(facts)
    lines += [f"- {text}" for text in facts.missing]
    return "\n".join(lines).rstrip()


# -- the answer ---------------------------------------------------------------------------------


def _headline(facts: JobAdvice) -> str:
    advice = facts.advice
    match facts.verdict:
        case Verdict.FINE if advice.current is not None:
            return (
                f"The interval of {_short(advice.current.interval_s)} is fine: it may be "
                f"{_range(advice.lower, advice.upper)}."
            )
        case Verdict.CHANGE if advice.current is not None and advice.recommended is not None:
            return (
                f"Change the interval from {_short(advice.current.interval_s)} to "
                f"{format_interval(advice.recommended.interval_s)}: {_why(facts)}"
            )
        case Verdict.NEW if advice.recommended is not None:
            return (
                f"Take a checkpoint every {format_interval(advice.recommended.interval_s)}: the "
                f"interval may be {_range(advice.lower, advice.upper)}."
            )
    return f"No interval meets all goals: {_conflict(facts)}"


def _range(lower: Bound, upper: Bound) -> str:
    least = f"at least {_short(lower.seconds)}" if lower.seconds > 0 else ""
    most = f"at most {_short(upper.seconds)}" if math.isfinite(upper.seconds) else ""
    return " and ".join(filter(None, (least, most))) or "any"


def _why(facts: JobAdvice) -> str:
    advice = facts.advice
    assert advice.current is not None
    is_long = advice.current.interval_s > advice.upper.seconds
    return _sentence(advice.upper if is_long else advice.lower, facts)


def _conflict(facts: JobAdvice) -> str:
    upper, lower = facts.advice.upper, facts.advice.lower
    if lower.kind is BoundKind.KEEP_UP and not lower.can_be_met:
        return "more records arrive than the job can process."
    parts = [f"{_sentence(lower, facts)} "] if lower.seconds > 0 else []
    return "".join(parts) + _sentence(upper, facts)


def _sentence(bound: Bound, facts: JobAdvice) -> str:
    goals, lost = facts.goals, facts.checkpoint.lost.value
    limit = _limit(bound)
    match bound.kind, bound.is_upper:
        case BoundKind.RECOVERY, True:
            return (
                f"to catch up within {_short(goals.recovery_target_s or 0)} after a failure, "
                f"{limit}."
            )
        case BoundKind.RECOVERY, False:
            return f"more frequent checkpoints leave too little capacity to catch up: {limit}."
        case BoundKind.VISIBILITY, _:
            return f"to make output visible within {_short(goals.visibility_s or 0)}, {limit}."
        case BoundKind.OVERHEAD, _:
            return (
                f"a checkpoint takes {duration(lost)} of the capacity, and "
                f"{100 * goals.overhead:g} % may go to checkpoints: {limit}."
            )
        case BoundKind.KEEP_UP, _:
            return f"the capacity that checkpoints leave must exceed the input: {limit}."
    return f"a checkpoint must be complete before the next one: {limit}."


def _limit(bound: Bound) -> str:
    if not bound.can_be_met:
        return "no interval is short enough" if bound.is_upper else "no interval is long enough"
    if bound.is_upper:
        none = not math.isfinite(bound.seconds)
        return "there is no limit" if none else f"at most {_short(bound.seconds)}"
    return "there is no limit" if bound.seconds <= 0 else f"at least {_short(bound.seconds)}"


def _lever(lever: Lever) -> str:
    now, needed = (_amount(lever.input, value) for value in (lever.now, lever.needed))
    lines = "".join(f"\n    {key}: {value}" for key, value in lever.configuration)
    return f"- {lever.input.value}: {needed} instead of {now} ({lever.how}){lines}"


def _amount(kind: Input, value: float) -> str:
    return f"{value:.0%}" if kind in _SHARES else _short(value)


# -- tables -------------------------------------------------------------------------------------


def _bound(bound: Bound, facts: JobAdvice) -> dict[str, str]:
    return {"BOUND": bound.kind.value, "INTERVAL": _limit(bound), "BECAUSE": _because(bound, facts)}


def _because(bound: Bound, facts: JobAdvice) -> str:
    sentence = _sentence(bound, facts).removesuffix(".").removesuffix(_limit(bound))
    return sentence.rstrip(" ,:")


def _outcomes(facts: JobAdvice) -> Iterator[dict[str, str]]:
    current, recommended = facts.advice.current, facts.advice.recommended
    columns = {}
    if current is not None:
        columns["NOW"] = _outcome(current)
    if recommended is not None and facts.verdict is not Verdict.FINE:
        columns["RECOMMENDED"] = _outcome(recommended)
    for what in next(iter(columns.values()), {}):
        yield {"PREDICTED": what, **{head: cells[what] for head, cells in columns.items()}}


def _outcome(outcome: Outcome) -> dict[str, str]:
    return {
        "interval": _short(outcome.interval_s),
        "duration of a checkpoint": duration(outcome.duration_s),
        "bytes of a checkpoint": size(round(outcome.new_bytes)),
        "capacity for checkpoints": f"{outcome.overhead:.1%}",
        "load": "-" if outcome.load is None else f"{outcome.load:.0%}",
        "back to normal after a failure, mean": _maybe(outcome.normal_mean_s),
        "back to normal after a failure, worst": _maybe(outcome.normal_worst_s),
        "output visible after, mean": duration(outcome.visible_mean_s),
        "output visible after, worst": duration(outcome.visible_worst_s),
    }


def _inputs(facts: JobAdvice) -> Iterator[dict[str, str]]:
    cost, recovery = facts.checkpoint, facts.recovery
    at = _short(facts.checkpoint_interval_s)
    yield _input(f"checkpoint every {at}: L", cost.duration)
    yield _input("  barrier", cost.barrier)
    yield _input("  snapshot", cost.snapshot)
    yield _input("  persist", cost.persist)
    yield _input("  coordination", cost.coordination)
    yield _input("capacity lost per checkpoint: C", cost.lost)
    yield _input("recovery: R", recovery.downtime)
    yield _input("  detect", recovery.detect)
    yield _input("  redeploy", recovery.redeploy)
    yield _input("  load state", recovery.load_state)
    yield _input("  reset sources", recovery.reset_sources)
    yield _input("  reset sinks", recovery.reset_sinks)
    yield _input("until records are processed", recovery.processing)
    load = facts.load
    if load.rate is not None:
        yield _rate("input rate", load.rate, "")
    if load.capacity is not None:
        estimated = load.source is CapacitySource.MICRO_BATCHES
        yield _rate("highest rate", load.capacity, "estimated" if estimated else "")
    failures = facts.advice.failures_per_day
    per_day = f"{failures:,.0f}" if failures >= 10 else f"{failures:.2g}"
    yield {"MODEL": "failures per day", "VALUE": per_day, "RANGE": "", "FROM": ""}
    state = size(round(facts.state_bytes))
    yield {"MODEL": "state", "VALUE": state, "RANGE": "", "FROM": ""}


def _input(name: str, estimate: Estimate) -> dict[str, str]:
    return {
        "MODEL": name,
        "VALUE": duration(estimate.value),
        "RANGE": f"{duration(estimate.low)} .. {duration(estimate.high)}",
        "FROM": _source(estimate),
    }


def _rate(name: str, estimate: Estimate, source: str) -> dict[str, str]:
    return {
        "MODEL": name,
        "VALUE": f"{estimate.value:,.0f}/s",
        "RANGE": f"{estimate.low:,.0f} .. {estimate.high:,.0f}",
        "FROM": source or (_source(estimate) if estimate.is_measured else "given"),
    }


def _source(estimate: Estimate) -> str:
    return plural(estimate.observations, "observation") if estimate.is_measured else "assumed"


def _consistency(facts: JobAdvice) -> list[str]:
    found = facts.consistency
    if found is None:
        return []
    if facts.guarantee is not Guarantee.EXACTLY_ONCE:
        return ["The job runs at least once: P(exactly once) does not apply.", ""]
    return [
        (
            f"P(exactly once) {_probability(found.exactly_once)}: checkpoints "
            f"{_count(found.checkpoint)}, restored sources {_count(found.source)}, committed "
            f"sinks {_count(found.sink)}"
        ),
        "",
    ]


def _probability(found: Proportion) -> str:
    return f"{found.value:.3%}, with 95 % confidence above {found.low:.1%}"


def _count(found: Proportion) -> str:
    return f"{found.successes} of {found.trials}"


def _maybe(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return "never" if not math.isfinite(seconds) else duration(seconds)


def _short(seconds: float) -> str:
    return "forever" if not math.isfinite(seconds) else duration(seconds)
