from __future__ import annotations

import pytest

from penstock.job.submitter import MicroBatchLostError
from penstock.spark.submit.submitter import checked
from penstock.task.messages import Acknowledgement, Instruction, SubtaskWork


def instruction(stage: int, subtasks: int) -> Instruction:
    return Instruction("job", "a1", stage, 5, 0, [SubtaskWork()] * subtasks)


def acks(*subtasks: int) -> list[Acknowledgement]:
    return [Acknowledgement(subtask, f"task-{subtask}") for subtask in subtasks]


INSTRUCTIONS = [instruction(0, 2), instruction(1, 3)]


def test_acknowledgements_are_ordered_by_subtask() -> None:
    assert checked([acks(1, 0), acks(2, 0, 1)], INSTRUCTIONS, ()) == [acks(0, 1), acks(0, 1, 2)]


@pytest.mark.parametrize("wrong", [acks(0, 1), acks(0, 1, 1), acks(0, 1, 2, 2), acks(0, 1, 2, 3)])
def test_a_wrong_number_of_acknowledgements_loses_the_micro_batch(
    wrong: list[Acknowledgement],
) -> None:
    with pytest.raises(MicroBatchLostError, match=r"stage 1, micro-batch 5.*of subtasks \[0, 1"):
        checked([acks(0, 1), wrong], INSTRUCTIONS, ())


def test_a_sparse_stage_may_have_run_fewer_tasks() -> None:
    assert checked([acks(1), acks(0, 1, 2)], INSTRUCTIONS, [0]) == [
        [Acknowledgement(0, "none-0"), *acks(1)],
        acks(0, 1, 2),
    ]


def test_a_failure_is_returned_even_if_downstream_stages_did_not_run() -> None:
    failed = [[*acks(0), Acknowledgement(1, "task-1", failure=b"why")], []]
    assert checked(failed, INSTRUCTIONS, ()) == failed
