"""Formulas for checkpoint intervals: Young, Daly, time to normal, and the bounds of the interval.

Symbols, in seconds unless stated: T interval, C capacity lost per checkpoint, M mean time between
failures, L trigger to completion, R downtime of a recovery, A age of the snapshot that is
restored, S recovery target, V wanted visibility, rho input rate over highest rate.
"""

from __future__ import annotations

import math

_NEWTON_STEPS = 50


def young(cost_s: float, failures_every_s: float) -> float:
    """Return Young's interval, √(2CM)."""
    return math.sqrt(2 * cost_s * failures_every_s)


def daly(cost_s: float, failures_every_s: float) -> float:
    """Return Daly's higher-order interval, from the start of one checkpoint to the next.

    Daly's own T does not include the checkpoint itself; this one does.
    """
    if cost_s >= 2 * failures_every_s:
        return failures_every_s + cost_s
    ratio = cost_s / (2 * failures_every_s)
    return young(cost_s, failures_every_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9)


def optimal(cost_s: float, failures_every_s: float) -> float:
    """Return the interval that maximizes (T - C) / (exp(T/M) - 1), for failures at random.

    It is M * (1 + C/M + W(-exp(-1 - C/M))), with the main branch W of Lambert's function.
    """
    ratio = cost_s / failures_every_s
    return failures_every_s * (1 + ratio + _lambert_w_near_branch_point(ratio))


def _lambert_w_near_branch_point(ratio: float) -> float:
    """Return W(-exp(-1 - ratio)), which is between -1 and 0.

    With w = u - 1 the equation w * exp(w) = -exp(-1 - ratio) becomes u + log(1 - u) = -ratio,
    where nothing cancels as it would for a small ratio.
    """
    if ratio <= 0:
        return -1.0
    # u + log1p(-u) is about -u²/2 for small u, and falls steadily; Newton's steps stay below 1.
    u = min(math.sqrt(2 * ratio), -math.expm1(-1 - ratio))
    for _ in range(_NEWTON_STEPS):
        step = (u + math.log1p(-u) + ratio) * (1 - u) / u
        u = min(max(u + step, u / 2), (1 + u) / 2)
    return u - 1


def time_to_normal(downtime_s: float, load: float, age_s: float) -> float:
    """Return (R + rho*A)/(1 - rho): from a failure until the job has caught up.

    It never does for rho of 1 or more.
    """
    return math.inf if load >= 1 else (downtime_s + load * age_s) / (1 - load)


def age(interval_s: float, duration_s: float, *, worst: bool) -> float:
    """Return how old the newest usable snapshot is when a failure comes: L + T, mean L + T/2."""
    return duration_s + (interval_s if worst else interval_s / 2)


def highest_for_recovery(
    target_s: float, load: float, downtime_s: float, duration_s: float
) -> float:
    """Return the longest T that meets a recovery target at worst: ((1-rho)S - R)/rho - L.

    It is infinite without load, and negative if no interval is short enough.
    """
    if load <= 0:
        return math.inf if downtime_s <= target_s else -math.inf
    return ((1 - load) * target_s - downtime_s) / load - duration_s


def highest_for_visibility(visibility_s: float, duration_s: float) -> float:
    """Return the longest T at which output is visible within V in the worst case: V - L."""
    return visibility_s - duration_s


def lowest_for_overhead(cost_s: float, overhead: float) -> float:
    """Return the shortest T at which checkpoints take no more than this share: C/ε."""
    return math.inf if overhead <= 0 and cost_s > 0 else cost_s / overhead if cost_s else 0.0


def lowest_to_keep_up(cost_s: float, load: float) -> float:
    """Return the T above which capacity suffices: C/(1 - λ/μ₀), μ₀ without checkpoints."""
    return math.inf if load >= 1 else cost_s / (1 - load)


def load_while_checkpointing(load: float, cost_s: float, interval_s: float) -> float:
    """Return λ/μ, given λ/μ₀ without checkpoints: a checkpoint takes C out of every T."""
    if interval_s <= cost_s:
        return math.inf if load > 0 else 0.0
    return load / (1 - cost_s / interval_s)


def highest_load_for_recovery(
    target_s: float, downtime_s: float, duration_s: float, interval_s: float
) -> float:
    """Return the highest rho at which an interval meets a recovery target: (S-R)/(S+L+T)."""
    return (target_s - downtime_s) / (target_s + duration_s + interval_s)


def highest_downtime_for_recovery(
    target_s: float, load: float, duration_s: float, interval_s: float
) -> float:
    """Return the longest R at which an interval meets a target: (1-rho)S - rho*(L+T)."""
    return (1 - load) * target_s - load * (duration_s + interval_s)
