"""Which input to change if no interval is within all bounds, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from penstock.models import interval as formulas


class Input(Enum):
    """An input of the models that somebody can change."""

    LOAD = "load"
    COST = "cost of a checkpoint"
    DOWNTIME = "downtime of a recovery"
    DURATION = "duration of a checkpoint"
    RECOVERY_TARGET = "recovery target"
    VISIBILITY = "visibility"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True)
class Lever:
    """One input, its value now, and the value at which an interval is possible."""

    input: Input
    now: float
    needed: float
    """If only this one is changed."""
    how: str
    configuration: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """The bounds that exclude each other, and the inputs at the shortest possible interval."""

    shortest_s: float
    longest_s: float | None
    """None if only the ability to keep up is missing."""
    is_about_recovery: bool
    is_about_visibility: bool
    is_about_load: bool
    cost_s: float
    duration_s: float
    load: float | None
    downtime_s: float
    recovery_target_s: float | None
    overhead: float
    parallelism: int | None
    writes_everything: bool


def levers(conflict: Conflict) -> tuple[Lever, ...]:
    """Return what may be changed, the smallest relative change first."""
    found = []
    if conflict.is_about_recovery and conflict.load is not None:
        found += _recovery(conflict, conflict.load, conflict.recovery_target_s or 0.0)
    if conflict.is_about_visibility and conflict.longest_s is not None:
        found += _visibility(conflict, conflict.longest_s)
    if conflict.is_about_load:
        found += _load(conflict)
    elif conflict.longest_s:
        found += _cost(conflict, conflict.longest_s)
    return tuple(sorted(found, key=_relative_change))


def _relative_change(lever: Lever) -> float:
    if lever.now <= 0 or lever.needed <= 0 or not math.isfinite(lever.now):
        return math.inf
    return abs(math.log(lever.needed / lever.now))


def _recovery(conflict: Conflict, load: float, target: float) -> list[Lever]:
    shortest, duration, down = conflict.shortest_s, conflict.duration_s, conflict.downtime_s
    found = []
    needed = formulas.highest_load_for_recovery(target, down, duration, shortest)
    if 0 < needed < load:
        found.append(_parallelism(conflict, load, needed))
    needed = formulas.highest_downtime_for_recovery(target, load, duration, shortest)
    if 0 < needed < down:
        how = (
            "a driver that starts faster: penstock run --supervise sees its death at once, "
            "failures inside the driver need no new Spark"
        )
        found.append(Lever(Input.DOWNTIME, down, needed, how))
    reached = formulas.time_to_normal(down, load, formulas.age(shortest, duration, worst=True))
    if math.isfinite(reached):
        found.append(Lever(Input.RECOVERY_TARGET, target, reached, "accept a longer recovery"))
    return found


def _visibility(conflict: Conflict, longest: float) -> list[Lever]:
    wanted = longest + conflict.duration_s
    needed = conflict.shortest_s + conflict.duration_s
    found = [Lever(Input.VISIBILITY, wanted, needed, "accept later output")]
    shorter = wanted - conflict.shortest_s
    if 0 < shorter < conflict.duration_s:
        how = "smaller micro-batches, or unaligned barriers, let barriers pass sooner"
        lines = (("execution.checkpointing.unaligned.enabled", "true"),)
        found.append(Lever(Input.DURATION, conflict.duration_s, shorter, how, lines))
    return found


def _cost(conflict: Conflict, longest: float) -> list[Lever]:
    """A cheaper checkpoint, or more overhead, allows a shorter interval."""
    found = []
    if 0 < conflict.overhead * longest < conflict.cost_s:
        found.append(_cheaper(conflict, conflict.overhead * longest))
        found.append(
            Lever(
                Input.OVERHEAD,
                conflict.overhead,
                conflict.cost_s / longest,
                "let checkpoints take a larger share of the capacity",
            )
        )
    return found


def _cheaper(conflict: Conflict, needed: float) -> Lever:
    if conflict.writes_everything:
        how = "checkpoints write the whole state: incremental ones write what changed"
        lines = (
            ("state.backend.type", "rocksdb"),
            ("execution.checkpointing.incremental", "true"),
        )
        return Lever(Input.COST, conflict.cost_s, needed, how, lines)
    how = "less state per key, or state that expires (TTL), makes checkpoints smaller"
    return Lever(Input.COST, conflict.cost_s, needed, how)


def _load(conflict: Conflict) -> list[Lever]:
    """The job cannot keep up with any interval, or only with very long ones."""
    load = conflict.load
    if load is None:
        return []
    # Flink's autoscaler leaves as much.
    needed = 0.7
    return [_parallelism(conflict, load, needed)] if load > needed else []


def _parallelism(conflict: Conflict, load: float, needed: float) -> Lever:
    how = "more parallelism or faster functions: the job needs spare capacity to catch up"
    lines: tuple[tuple[str, str], ...] = ()
    if conflict.parallelism and math.isfinite(load):
        wanted = math.ceil(conflict.parallelism * load / needed)
        how = f"parallelism {wanted} instead of {conflict.parallelism}, if it scales"
        lines = (("parallelism.default", str(wanted)),)
    return Lever(Input.LOAD, load, needed, how, lines)
