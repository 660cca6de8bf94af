"""Which subtask runs in which process."""

from penstock.common.live_figures import ExecutorInfo, StageFigures, SubtaskFigures
from penstock.job.figures.cluster import ClusterInfo, with_executors


def stage(number: int, *executors: str) -> StageFigures:
    subtasks = [SubtaskFigures(i, e, "host") for i, e in enumerate(executors)]
    return StageFigures(number, "stage", parallelism=len(executors), subtasks=subtasks)


def test_each_executor_names_the_subtasks_that_ran_there() -> None:
    executors = [ExecutorInfo("0", "a", 2), ExecutorInfo("1", "b", 2), ExecutorInfo("2", "c")]
    _, found = with_executors([stage(0, "0", "1"), stage(1, "1", "9", "1")], executors)
    assert [e.subtasks for e in found] == [{0: [0]}, {0: [1], 1: [0, 2]}, {}]


def test_tasks_that_name_no_executor_run_in_the_driver_if_that_is_the_only_one() -> None:
    waiting = StageFigures(1, "stage", subtasks=[SubtaskFigures(0)])
    stages, (driver,) = with_executors([stage(0, "", ""), waiting], ClusterInfo().executors)
    assert [s.executor for s in stages[0].subtasks] == ["driver", "driver"]
    assert [s.executor for s in stages[1].subtasks] == [""]
    assert driver.subtasks == {0: [0, 1]}
    _, others = with_executors([stage(0, "")], [ExecutorInfo("0", "a")])
    assert others[0].subtasks == {}
