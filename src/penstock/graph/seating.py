"""Seats: which partition of a group's job a subtask is.

A group runs level by level. The partitions of a level are the subtasks of its stages, one stage
after the other; it is the same for every micro-batch, so that a subtask finds its state again.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph.groups import Group
from penstock.ids import StageId


@dataclass(frozen=True, slots=True)
class Seat:
    """A partition of one level of a group's job."""

    level: int
    partition: int


@dataclass(frozen=True, slots=True)
class Seating:
    """All seats of a group; small, and shipped to its tasks."""

    order: tuple[StageId, ...]
    """The stages as the group has them."""
    levels: tuple[tuple[tuple[StageId, int], ...], ...]
    """By level, its stages and how many subtasks each has."""

    def width(self, level: int) -> int:
        """Return how many partitions a level has."""
        return sum(parallelism for _, parallelism in self.levels[level])

    def seat(self, stage: StageId, subtask: int) -> Seat:
        """Return where a subtask sits."""
        for level, stages in enumerate(self.levels):
            first = 0
            for other, parallelism in stages:
                if other == stage:
                    return Seat(level, first + subtask)
                first += parallelism
        raise KeyError(stage)

    def sitting(self, seat: Seat) -> tuple[StageId, int]:
        """Return who sits there: a stage and one of its subtasks."""
        left = seat.partition
        for stage, parallelism in self.levels[seat.level]:
            if left < parallelism:
                return stage, left
            left -= parallelism
        raise IndexError(seat)

    def way_to(self, target: Seat, level: int) -> int:
        """Return the partition of a level that brings a parcel on its way to a later one."""
        return target.partition % self.width(level)


def seating(group: Group) -> Seating:
    """Seat the subtasks of a group."""
    parallelism = {s.id: s.parallelism for s in group.stages}
    return Seating(
        order=tuple(s.id for s in group.stages),
        levels=tuple(tuple((s, parallelism[s]) for s in level) for level in group.levels),
    )
