"""What jobs and stages record of themselves: times that sum up, rates of a minute, checkpoints."""

from __future__ import annotations

import pytest

from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, OperatorStats
from penstock.checkpoint.storage.metadata import SubtaskStats
from penstock.common import Types
from penstock.common.event_time import MIN_WATERMARK
from penstock.common.live_figures import StageFigures
from penstock.datastream.connectors import DiscardingSink
from penstock.graph.plan import Plan
from penstock.job.figures.job_monitor import JobMonitor
from penstock.job.figures.totals import RateTotals
from penstock.state.backends.refs import FileRef, StateRef
from penstock.task.messages import Acknowledgement, OperatorCounts
from tests.unit.support import environment, plan_of


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def plan() -> Plan:
    env = environment(parallelism=2)
    numbers = env.from_collection(range(9), Types.LONG()).name("numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n, Types.LONG()).reduce(lambda a, b: a + b).uid("keyed")
    keyed.sink_to(DiscardingSink()).uid("sink")
    return plan_of(env)


@pytest.fixture
def job(clock: Clock) -> JobMonitor:
    monitor = JobMonitor(plan(), clock, clock)
    # Starting Spark takes its time, which is no part of any rate.
    clock.now += 40
    monitor.attempt_started()
    return monitor


def acked(subtask: int, records: int, seconds: float = 0.0) -> Acknowledgement:
    return Acknowledgement(
        subtask,
        f"a{subtask}",
        records_in=records,
        operators={"keyed": OperatorCounts(records, 2 * records)},
        phases={"read": seconds / 4, "process": seconds * 3 / 4},
    )


def times(figures: StageFigures, subtask: int) -> tuple[float, ...]:
    names = ("busyTimeMsPerSecond", "backPressuredTimeMsPerSecond", "idleTimeMsPerSecond")
    return tuple(figures.subtasks[subtask].metrics[name] for name in names)


def test_busy_backpressured_and_idle_time_make_up_each_second(
    job: JobMonitor, clock: Clock
) -> None:
    keyed = job.stages[1]  # type: ignore[index]
    clock.now += 4
    keyed.published([acked(0, 10, 4.0), acked(1, 10, 1.0)], [])
    keyed.observe_backpressure(is_blocked=True)
    clock.now += 3
    keyed.observe_backpressure(is_blocked=True)
    keyed.observe_backpressure(is_blocked=False)
    clock.now += 3
    figures = keyed.figures()
    assert times(figures, 0) == pytest.approx((400, 300, 300))
    assert times(figures, 1) == pytest.approx((100, 300, 600))
    assert figures.subtasks[1].metrics["accumulateIdleTimeMs"] == pytest.approx(6000)
    assert figures.subtasks[1].metrics["isBackPressured"] == 0


def test_a_wait_counts_while_it_lasts_and_ends_with_the_attempt(
    job: JobMonitor, clock: Clock
) -> None:
    keyed = job.stages[1]  # type: ignore[index]
    keyed.observe_backpressure(is_blocked=True)
    clock.now += 5
    assert times(keyed.figures(), 0) == pytest.approx((0, 1000, 0))
    assert keyed.figures().subtasks[0].metrics["isBackPressured"] == 1
    job.attempt_failed()
    clock.now += 5
    assert times(keyed.figures(), 0) == pytest.approx((0, 500, 500))
    assert keyed.figures().subtasks[0].metrics["isBackPressured"] == 0


def test_a_loop_that_waits_until_its_attempt_is_closed_does_not_wait_any_more(
    job: JobMonitor, clock: Clock
) -> None:
    keyed = job.stages[1]  # type: ignore[index]
    job.attempt_failed()
    # The loops end after the failure is known.
    keyed.observe_backpressure(is_blocked=True)
    keyed.observe_pending(5)
    clock.now += 1
    job.attempt_closed()
    clock.now += 8
    assert keyed.figures().subtasks[0].metrics["isBackPressured"] == 0
    assert times(keyed.figures(), 0) == pytest.approx((0, 1000 / 9, 8000 / 9))


def test_a_long_micro_batch_never_makes_more_than_a_second_of_a_second(
    job: JobMonitor, clock: Clock
) -> None:
    keyed = job.stages[1]  # type: ignore[index]
    clock.now += 100
    keyed.published([acked(0, 1, 100.0)], [])
    assert times(keyed.figures(), 0) == pytest.approx((1000, 0, 0))


def test_rates_refer_to_the_last_minute_or_to_the_time_since_the_start(
    job: JobMonitor, clock: Clock
) -> None:
    keyed = job.stages[1]  # type: ignore[index]

    def rate() -> float:
        found = keyed.figures().operators[0].subtasks[0]["numRecordsOutPerSecond"]
        assert found == 2 * keyed.figures().subtasks[0].metrics["numRecordsInPerSecond"]
        return found

    clock.now += 10
    keyed.published([acked(0, 100)], [])
    assert rate() == pytest.approx(20)
    for _ in range(20):
        clock.now += 10
        keyed.published([acked(0, 1000)], [])
    assert rate() == pytest.approx(200, rel=0.2)
    clock.now += 60
    assert rate() == 0
    assert keyed.figures().operators[0].subtasks[0]["numRecordsOut"] == 2 * 20_100


def test_totals_keep_readings_of_little_more_than_a_minute() -> None:
    totals = RateTotals[str](0.0)
    for second in range(1000):
        totals.prepare(float(second))
        totals.add("a", 3)
    assert len(totals._readings) < 16
    assert totals.rates(999.0)["a"] == pytest.approx(3, rel=0.1)


def test_state_size_is_that_of_its_files_and_of_operator_state(job: JobMonitor) -> None:
    keyed = job.stages[1]  # type: ignore[index]
    base, delta = FileRef("base", 1, 1000, 0), FileRef("delta", 2, 20, 0)
    ack = Acknowledgement(0, "a0", operator_state={"sink": b"abc"})
    keyed.published([ack, acked(1, 1)], [StateRef(2, base, (delta,)), StateRef(1, inline=b"12345")])
    head, sink = keyed.figures().operators
    assert [head.subtasks[i]["stateSize"] for i in (0, 1)] == [1020, 5]
    assert [sink.subtasks[i].get("stateSize") for i in (0, 1)] == [3, None]
    assert [s.metrics["stateSize"] for s in keyed.figures().subtasks] == [1023, 5]


def test_watermarks_are_absent_until_there_is_one(job: JobMonitor, clock: Clock) -> None:
    source = job.stages[0]  # type: ignore[index]
    source.observe_watermarks({"numbers": (MIN_WATERMARK, MIN_WATERMARK)})
    source.observe_pending(7)
    metrics = source.figures().operators[0].subtasks
    assert [m.get("pendingRecords") for m in metrics.values()] == [7, None][: len(metrics)]
    assert {name for m in metrics.values() for name in m if "atermark" in name} == set()
    source.observe_watermarks({"numbers": (MIN_WATERMARK, 1_000_000)})
    found = source.figures().operators[0].subtasks[0]
    assert "currentInputWatermark" not in found
    assert found["currentOutputWatermark"] == 1_000_000
    assert found["watermarkLag"] == pytest.approx(clock.now * 1000 - 1_000_000)


def checkpoint(number: int, status: CheckpointStatus) -> CheckpointStats:
    stats = [SubtaskStats(start_delay_s=0.5, alignment_s=0.25), SubtaskStats()]
    return CheckpointStats(
        id=number,
        kind="checkpoint",
        status=status,
        attempt="a1",
        triggered=1.0,
        duration_s=0.125,
        new_bytes=10,
        full_bytes=100,
        operators=[OperatorStats("keyed", "Reduce", stats), OperatorStats("sink", "Sink")],
        in_flight_bytes=5,
    )


def test_checkpoints_are_counted_and_the_last_completed_one_is_described(job: JobMonitor) -> None:
    assert "lastCheckpointDuration" not in job.metrics(0)
    job.checkpoint_ended(checkpoint(1, CheckpointStatus.COMPLETED))
    job.checkpoint_ended(checkpoint(2, CheckpointStatus.COMPLETED))
    job.checkpoint_ended(checkpoint(3, CheckpointStatus.FAILED))
    found = job.metrics(2)
    assert {name: found[name] for name in found if name.startswith(("numberOf", "total"))} == {
        "numberOfCompletedCheckpoints": 2,
        "numberOfFailedCheckpoints": 1,
        "numberOfInProgressCheckpoints": 2,
        "totalNumberOfCheckpoints": 5,
    }
    assert {name: found[name] for name in found if name.startswith("last")} == {
        "lastCompletedCheckpointId": 2,
        "lastCheckpointDuration": 125,
        "lastCheckpointSize": 10,
        "lastCheckpointFullSize": 100,
        "lastCheckpointPersistedData": 5,
    }
    metrics = job.stages[1].figures().subtasks[0].metrics  # type: ignore[index]
    assert metrics["checkpointStartDelayNanos"] == 500_000_000
    assert metrics["checkpointAlignmentTime"] == 250_000_000


def test_restarts_are_counted_and_timed(job: JobMonitor, clock: Clock) -> None:
    clock.now += 10
    assert job.metrics(0)["runningTime"] == 10_000
    job.attempt_failed()
    clock.now += 3
    down = job.metrics(0)
    assert [down[n] for n in ("uptime", "downtime", "restartingTime", "numRestarts")] == [
        0,
        3000,
        3000,
        0,
    ]
    clock.now += 1
    job.restored()
    job.attempt_started()
    clock.now += 5
    up = job.metrics(0)
    assert [up[n] for n in ("uptime", "downtime", "restartingTime", "numRestarts")] == [
        5000,
        0,
        4000,
        1,
    ]
    assert up["lastCheckpointRestoreTimestamp"] == (clock.now - 5) * 1000
