from __future__ import annotations

from typing import NoReturn

from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.regions import SlotAssignment, SubtaskSlot
from penstock.ids import StageId
from penstock.task.messages import Acknowledgement
from penstock.task.shuffle.level import ShuffleLevel, acknowledgements_by_stage
from penstock.task.shuffle.records import (
    ShuffleRecord,
    ShuffleRecordKind,
    acknowledgement_record,
    decode_shuffle_record,
)

widths = st.lists(st.integers(1, 7), min_size=2, max_size=4)


def slots(widths: list[int]) -> SlotAssignment:
    """One stage per level, with so many subtasks."""
    stages = [StageId(number) for number in range(len(widths))]
    return SlotAssignment(
        tuple(stages), tuple(((s, w),) for s, w in zip(stages, widths, strict=True))
    )


def no_task(stage: StageId) -> NoReturn:
    raise AssertionError(stage)


def failed(stage: int, subtask: int) -> bytes:
    return bytes(
        acknowledgement_record(StageId(stage), Acknowledgement(subtask, "name", failure=b"why"))
    )


def done(stage: int, subtask: int) -> bytes:
    return bytes(
        acknowledgement_record(StageId(stage), Acknowledgement(subtask, f"{stage}-{subtask}"))
    )


@given(widths)
def test_a_failure_reaches_every_later_subtask_once_and_none_of_them_runs(
    widths: list[int],
) -> None:
    plan = slots(widths)
    incoming = {partition: [failed(0, 1)] for partition in range(widths[1])}
    for number in range(1, len(widths)):
        level = ShuffleLevel(plan, number, [])
        assert sorted(incoming) == list(range(widths[number]))
        assert all(len(mail) == 1 for mail in incoming.values())
        outgoing = [
            record
            for partition, mail in incoming.items()
            for record in level.run(partition, (0, 0), no_task, mail)
        ]
        incoming = {}
        for partition, data in outgoing:
            incoming.setdefault(partition, []).append(data)
    told = acknowledgements_by_stage((data for _, data in outgoing), plan)
    assert [[a.subtask for a in acks] for acks in told] == [[1]] + [[]] * (len(widths) - 1)
    assert told[0][0].failure == b"why"


@given(widths, st.data())
def test_a_record_for_a_later_level_gets_there_untouched(
    widths: list[int], data: st.DataObject
) -> None:
    plan = slots([*widths, 3])
    target = SubtaskSlot(len(widths), data.draw(st.integers(0, 2)))
    record = bytes(ShuffleRecord(ShuffleRecordKind.SLICE, target, 5, 0, memoryview(b"records")))
    at = data.draw(st.integers(0, widths[1] - 1))
    for number in range(1, len(widths)):
        # Beside a failure nothing else happens here.
        out = ShuffleLevel(plan, number, []).run(at, (0, 0), no_task, [b"", record, failed(0, 0)])
        (at,) = (
            hop
            for hop, passed in out
            if decode_shuffle_record(passed).kind is ShuffleRecordKind.SLICE
        )
    assert at == target.partition


def test_acknowledgements_are_sorted_by_stage_and_subtask_each_once() -> None:
    rows = [done(1, 2), done(0, 1), done(1, 0), done(0, 0), done(1, 1), done(0, 1)]
    assert [[a.name for a in acks] for acks in acknowledgements_by_stage(rows, slots([2, 3]))] == [
        ["0-0", "0-1"],
        ["1-0", "1-1", "1-2"],
    ]
