from __future__ import annotations

from typing import NoReturn

from hypothesis import given
from hypothesis import strategies as st

from penstock.graph.seating import Seat, Seating
from penstock.ids import StageId
from penstock.task.level import Level, by_member
from penstock.task.messages import Acknowledgement
from penstock.task.parcels import Kind, Parcel, acknowledged, open_parcel

widths = st.lists(st.integers(1, 7), min_size=2, max_size=4)


def seats(widths: list[int]) -> Seating:
    """One stage per level, with so many subtasks."""
    stages = [StageId(number) for number in range(len(widths))]
    return Seating(tuple(stages), tuple(((s, w),) for s, w in zip(stages, widths, strict=True)))


def nobody(stage: StageId) -> NoReturn:
    raise AssertionError(stage)


def failed(stage: int, subtask: int) -> bytes:
    return bytes(acknowledged(StageId(stage), Acknowledgement(subtask, "name", failure=b"why")))


def done(stage: int, subtask: int) -> bytes:
    return bytes(acknowledged(StageId(stage), Acknowledgement(subtask, f"{stage}-{subtask}")))


@given(widths)
def test_a_failure_reaches_every_later_subtask_once_and_none_of_them_runs(
    widths: list[int],
) -> None:
    plan = seats(widths)
    incoming = {partition: [failed(0, 1)] for partition in range(widths[1])}
    for number in range(1, len(widths)):
        level = Level(plan, number, [])
        assert sorted(incoming) == list(range(widths[number]))
        assert all(len(mail) == 1 for mail in incoming.values())
        outgoing = [
            parcel
            for partition, mail in incoming.items()
            for parcel in level.run(partition, (0, 0), nobody, mail)
        ]
        incoming = {}
        for partition, data in outgoing:
            incoming.setdefault(partition, []).append(data)
    told = by_member((data for _, data in outgoing), plan)
    assert [[a.subtask for a in acks] for acks in told] == [[1]] + [[]] * (len(widths) - 1)
    assert told[0][0].failure == b"why"


@given(widths, st.data())
def test_a_parcel_for_a_later_level_gets_there_untouched(
    widths: list[int], data: st.DataObject
) -> None:
    plan = seats([*widths, 3])
    target = Seat(len(widths), data.draw(st.integers(0, 2)))
    parcel = bytes(Parcel(Kind.SLICE, target, 5, 0, memoryview(b"records")))
    at = data.draw(st.integers(0, widths[1] - 1))
    for number in range(1, len(widths)):
        # Beside a failure nothing else happens here.
        out = Level(plan, number, []).run(at, (0, 0), nobody, [b"", parcel, failed(0, 0)])
        (at,) = (hop for hop, passed in out if open_parcel(passed).kind is Kind.SLICE)
    assert at == target.partition


def test_acknowledgements_come_by_stage_and_subtask_each_once() -> None:
    rows = [done(1, 2), done(0, 1), done(1, 0), done(0, 0), done(1, 1), done(0, 1)]
    assert [[a.name for a in acks] for acks in by_member(rows, seats([2, 3]))] == [
        ["0-0", "0-1"],
        ["1-0", "1-1", "1-2"],
    ]
