from __future__ import annotations

import pytest

from penstock.job.submitter import MicroBatchLostError
from penstock.spark.submitter import checked
from penstock.task.messages import Acknowledgement, Instruction, SubtaskWork


def instruction(stage: int, subtasks: int) -> Instruction:
    return Instruction("job", "a1", stage, 5, 0, [SubtaskWork()] * subtasks)


def acks(*subtasks: int) -> list[Acknowledgement]:
    return [Acknowledgement(subtask, f"task-{subtask}") for subtask in subtasks]


TOLD = [instruction(0, 2), instruction(1, 3)]


def test_all_are_put_in_order() -> None:
    assert checked([acks(1, 0), acks(2, 0, 1)], TOLD, ()) == [acks(0, 1), acks(0, 1, 2)]


@pytest.mark.parametrize("wrong", [acks(0, 1), acks(0, 1, 1), acks(0, 1, 2, 2), acks(0, 1, 2, 3)])
def test_too_few_or_too_many_lose_the_micro_batch(wrong: list[Acknowledgement]) -> None:
    with pytest.raises(MicroBatchLostError, match=r"stage 1, micro-batch 5.*of subtasks \[0, 1"):
        checked([acks(0, 1), wrong], TOLD, ())


def test_a_stage_may_have_run_fewer_tasks_where_that_is_known() -> None:
    assert checked([acks(1), acks(0, 1, 2)], TOLD, [0]) == [
        [Acknowledgement(0, "none-0"), *acks(1)],
        acks(0, 1, 2),
    ]


def test_a_failure_is_told_though_the_stages_behind_it_are_missing() -> None:
    failed = [[*acks(0), Acknowledgement(1, "task-1", failure=b"why")], []]
    assert checked(failed, TOLD, ()) == failed
