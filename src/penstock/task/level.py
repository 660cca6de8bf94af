"""One partition of one level of a group's job: parcels in, one subtask run, parcels out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.seating import Seat, Seating
from penstock.ids import StageId
from penstock.task.messages import Acknowledgement, Instruction
from penstock.task.parcels import (
    Kind,
    Mail,
    Parcel,
    acknowledged,
    open_acknowledgement,
    open_parcel,
)
from penstock.task.subtask import TaskAttempt, run_subtask

TaskOf = Callable[[StageId], bytes]
"""Gives a stage as it was shipped."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level in one try of a micro-batch; the same for all its partitions."""

    seating: Seating
    number: int
    instructions: Sequence[Instruction]
    """Of the stages of this level, in any order."""

    def run(
        self,
        partition: int,
        attempt: tuple[int, int],
        task_of: TaskOf,
        incoming: Iterable[bytes],
        batches: Iterator[pa.RecordBatch] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Run the subtask that sits there; called in a worker, once per task attempt.

        `attempt` is the task attempt's id and number. Yields parcels, each with the partition of
        the next level that it goes to; behind the last level there are only acknowledgements,
        for the driver. Where something in front of it has failed the subtask does not run.
        """
        stage, subtask = self.seating.sitting(Seat(self.number, partition))
        mail = Mail()
        has_failed = False
        for data in incoming:
            # The engine's own part of the input is empty.
            if not data:
                continue
            parcel = open_parcel(data)
            if parcel.kind is Kind.SLICE and parcel.to == Seat(self.number, partition):
                mail.inbox.add(parcel)
                continue
            has_failed = has_failed or parcel.kind is Kind.FAILURE
            for hop in self._hops(parcel, partition):
                yield hop, data
        if has_failed:
            return
        (instruction,) = (i for i in self.instructions if i.stage == stage)
        who = TaskAttempt(subtask, *attempt)
        ack = run_subtask(task_of(stage), instruction, who, batches, mail)
        if ack.failure is None:
            for parcel in mail.outbox.parcels(subtask, self.seating.seat):
                for hop in self._hops(parcel, partition):
                    yield hop, bytes(parcel)
        told = acknowledged(stage, ack)
        everyone = ack.failure is not None and not self._is_last
        hops = range(self._next_width) if everyone else self._hops(told, partition)
        for hop in hops:
            yield hop, bytes(told)

    @property
    def _is_last(self) -> bool:
        return self.number + 1 == len(self.seating.levels)

    @property
    def _next_width(self) -> int:
        return self.seating.width(self.number + 1)

    def _hops(self, parcel: Parcel, partition: int) -> Iterable[int]:
        """Return the partitions of the next level that a parcel goes to."""
        if self._is_last:
            return (0,)
        if parcel.kind is Kind.ACKNOWLEDGEMENT:
            return (partition % self._next_width,)
        if parcel.kind is Kind.FAILURE:
            # All of this level know it: together they tell all of the next, each of them once.
            return range(partition, self._next_width, self.seating.width(self.number))
        if parcel.to.level == self.number + 1:
            return (parcel.to.partition,)
        return (self.seating.way_to(parcel.to, self.number + 1),)


def by_member(rows: Iterable[bytes], seating: Seating) -> list[list[Acknowledgement]]:
    """Sort the acknowledgements that came out of the last level: by stage, then by subtask.

    Each task attempt is there once, though a failure may have come on many ways.
    """
    found: dict[StageId, dict[tuple[int, str], Acknowledgement]] = {
        stage: {} for stage in seating.order
    }
    for data in rows:
        stage, ack = open_acknowledgement(data)
        found[stage][ack.subtask, ack.name] = ack
    return [[acks[who] for who in sorted(acks)] for acks in found.values()]
