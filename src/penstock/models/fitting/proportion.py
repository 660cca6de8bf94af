"""Exact confidence intervals of a proportion, from counted events (Clopper and Pearson)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_STEPS = 60
"""Of the bisection; each halves the error."""


@dataclass(frozen=True, slots=True)
class Proportion:
    """How often something succeeded, and between which bounds its probability is."""

    successes: int
    trials: int
    value: float
    """The share of successes; 1 without trials, which only `low` shows to mean nothing."""
    low: float
    high: float


def proportion(successes: int, trials: int, confidence: float = 0.95) -> Proportion:
    """Return the interval of Clopper and Pearson, never narrower than it claims to be.

    Without trials it is 0 to 1.

    Raises:
        ValueError: there are more successes than trials, or the confidence is not a probability.
    """
    if not 0 <= successes <= trials or not 0 < confidence < 1:
        message = f"{successes} of {trials} with confidence {confidence}"
        raise ValueError(message)
    tail = (1 - confidence) / 2
    low, high = 0.0, 1.0
    if successes > 0:
        # So small a probability that this many successes or more would be that unlikely.
        low = _bisect(lambda p: 1 - _at_most(successes - 1, trials, p) < tail)
    if successes < trials:
        high = _bisect(lambda p: _at_most(successes, trials, p) > tail)
    value = successes / trials if trials else 1.0
    return Proportion(successes, trials, value, low, high)


def product(parts: list[tuple[int, int]], confidence: float = 0.95) -> Proportion:
    """Return the probability that all of some independent things succeed.

    The parts share the error probability (Bonferroni), so all their intervals hold at once with
    at least this confidence, and then their product does.
    """
    each = 1 - (1 - confidence) / max(len(parts), 1)
    found = [proportion(successes, trials, each) for successes, trials in parts]
    return Proportion(
        sum(p.successes for p in found),
        sum(p.trials for p in found),
        math.prod(p.value for p in found),
        math.prod(p.low for p in found),
        math.prod(p.high for p in found),
    )


def _at_most(successes: int, trials: int, p: float) -> float:
    """Return the probability of so many successes or fewer."""
    if p <= 0:
        return 1.0
    if p >= 1:
        return 1.0 if successes >= trials else 0.0
    whole = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(
            whole
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(p)
            + (trials - k) * math.log1p(-p)
        )
        for k in range(successes + 1)
    )


def _bisect(is_below: Callable[[float], bool]) -> float:
    """Return where a condition that holds for small probabilities stops to hold."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
