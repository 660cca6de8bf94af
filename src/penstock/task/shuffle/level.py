"""One partition of one shuffle level: records in, one subtask run, records out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.graph.regions import SlotAssignment, SubtaskSlot
from penstock.ids import StageId
from penstock.task.messages import Acknowledgement, Instruction
from penstock.task.shuffle.records import (
    ShuffleMessages,
    ShuffleRecord,
    ShuffleRecordKind,
    acknowledgement_record,
    decode_acknowledgement_record,
    decode_shuffle_record,
)
from penstock.task.subtask import TaskAttempt, run_subtask

TaskLoader = Callable[[StageId], bytes]
"""Returns a serialized stage."""


@dataclass(frozen=True, slots=True)
class ShuffleLevel:
    """One level in one try of a micro-batch; the same for all its partitions."""

    slots: SlotAssignment
    number: int
    instructions: Sequence[Instruction]
    """Of the stages of this level, in any order."""

    def run(
        self,
        partition: int,
        attempt: tuple[int, int],
        load: TaskLoader,
        incoming: Iterable[bytes],
        batches: Iterator[pa.RecordBatch] | None = None,
    ) -> Iterator[tuple[int, bytes]]:
        """Run the subtask of a partition; called in a worker, once per task attempt.

        `attempt` is the task attempt's id and number. Yields shuffle records, each with the
        partition of the next level that it goes to; the last level yields acknowledgements only,
        for the driver. If a task upstream has failed, the subtask does not run.
        """
        slot = SubtaskSlot(self.number, partition)
        stage, subtask = self.slots.subtask_at(slot)
        shuffle = ShuffleMessages()
        has_failed = False
        for data in incoming:
            # Partitions of Spark's own input have one empty row.
            if not data:
                continue
            record = decode_shuffle_record(data)
            if record.kind is ShuffleRecordKind.SLICE and record.to == slot:
                shuffle.input.add(record)
                continue
            has_failed = has_failed or record.kind is ShuffleRecordKind.FAILURE
            for hop in self._next_hops(record, partition):
                yield hop, data
        if has_failed:
            return
        (instruction,) = (i for i in self.instructions if i.stage == stage)
        task_attempt = TaskAttempt(subtask, *attempt)
        ack = run_subtask(load(stage), instruction, task_attempt, batches, shuffle)
        if ack.failure is None:
            for record in shuffle.output.records(subtask, self.slots.slot_of):
                for hop in self._next_hops(record, partition):
                    yield hop, bytes(record)
        record = acknowledgement_record(stage, ack)
        to_all = ack.failure is not None and not self._is_last
        hops = range(self._next_width) if to_all else self._next_hops(record, partition)
        for hop in hops:
            yield hop, bytes(record)

    @property
    def _is_last(self) -> bool:
        return self.number + 1 == len(self.slots.levels)

    @property
    def _next_width(self) -> int:
        return self.slots.width(self.number + 1)

    def _next_hops(self, record: ShuffleRecord, partition: int) -> Iterable[int]:
        """Return the partitions of the next level that a record goes to."""
        if self._is_last:
            return (0,)
        if record.kind is ShuffleRecordKind.ACKNOWLEDGEMENT:
            return (partition % self._next_width,)
        if record.kind is ShuffleRecordKind.FAILURE:
            # Every partition of this level has it; together they send it once to each of the next.
            return range(partition, self._next_width, self.slots.width(self.number))
        # A slice for a later level is relayed by a partition of the next one.
        return (record.to.partition % self._next_width,)


def acknowledgements_by_stage(
    rows: Iterable[bytes], slots: SlotAssignment
) -> list[list[Acknowledgement]]:
    """Sort the acknowledgements that the last level yielded: by stage, then by subtask.

    Each task attempt is included once, though a failure may arrive several times.
    """
    found: dict[StageId, dict[tuple[int, str], Acknowledgement]] = {
        stage: {} for stage in slots.order
    }
    for data in rows:
        stage, ack = decode_acknowledgement_record(data)
        found[stage][ack.subtask, ack.name] = ack
    return [[acks[attempt] for attempt in sorted(acks)] for acks in found.values()]
