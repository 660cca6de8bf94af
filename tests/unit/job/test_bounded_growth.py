"""What a driver remembers does not grow with the checkpoints, savepoints and requests of a job."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

from penstock.checkpoint.coordinator.actions import Answer
from penstock.checkpoint.coordinator.events import (
    CheckpointRequested,
    CommitsCompleted,
    CommittablesPrepared,
)
from penstock.checkpoint.coordinator.failure_manager import CheckpointFailureReason
from penstock.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.checkpoint.coordinator.request_decider import CheckpointRequest, RequestKind
from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.event_log import CheckpointEventLog
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.metadata import CommittableState, OperatorSnapshot, SourceState
from penstock.errors import CheckpointFailedError
from penstock.ids import AttemptId, CheckpointId, StageId
from penstock.job.reports import MicroBatchReport
from penstock.job.restore.retained_output import RetainedOutput
from penstock.job.restore.retained_snapshots import Positions, RetainedPositions
from penstock.job.statistics import JobStatistics
from penstock.task.messages import CheckpointNotification, NotificationKind
from tests.unit.checkpoint.coordinator.coordinated_job import MIDDLE, World
from tests.unit.checkpoint.coordinator.test_state_machine import Machine, completed, some
from tests.unit.job.restore.test_retained_output import Earlier, snapshot

MANY = 10_000


def reachable(root: object) -> int:
    """Count the objects that an object keeps alive, without classes and modules."""
    seen: set[int] = set()
    found = [root]
    while found:
        at = found.pop()
        if id(at) in seen or isinstance(at, type) or type(at).__name__ in ("module", "function"):
            continue
        seen.add(id(at))
        found += gc.get_referents(at)
    return len(seen)


def test_the_state_machine_forgets_checkpoints_savepoints_and_committables() -> None:
    machine = Machine(interval_s=1.0, tolerable_failures=MANY)
    sizes = []
    for n in range(1, MANY + 1):
        machine.at(machine.now + 2.0)
        id_ = machine.last
        if n % 3 == 0:
            machine.at(machine.now + 10_000.0)  # it expires, and the next one is triggered
            id_ = machine.last
        machine.on(CommittablesPrepared("files", [CommittableState(id_, b"part")]))
        if n % 5 == 0:
            savepoint = CheckpointRequest(RequestKind.SAVEPOINT, f"r{n}", f"/sp/{n}")
            machine.completes()
            machine.on(CheckpointRequested(savepoint))
            machine.due()
        machine.completes()
        machine.on(CommitsCompleted(completed(machine.last), False))
        if n in (MANY // 10, MANY):
            sizes.append(reachable(machine))
    assert sizes[1] <= sizes[0] + 10


def test_no_more_than_a_thousand_requests_wait() -> None:
    machine = Machine(enabled=False)
    savepoints = [CheckpointRequest(RequestKind.SAVEPOINT, f"r{n}", "/sp") for n in range(1500)]
    answers = machine.on(*map(CheckpointRequested, savepoints))
    rejected = some(answers, Answer)
    assert [answer.request for answer in rejected] == [f"r{n}" for n in range(1000, 1500)]
    assert all(isinstance(answer.result, CheckpointFailedError) for answer in rejected)
    assert "1000 requests are waiting already" in str(rejected[0].result)


def test_a_rejected_drain_ends_no_source() -> None:
    machine = Machine(enabled=False)
    machine.on(
        *(
            CheckpointRequested(CheckpointRequest(RequestKind.SAVEPOINT, f"r{n}", "/sp"))
            for n in range(1000)
        )
    )
    machine.on(CheckpointRequested(CheckpointRequest(RequestKind.FINAL, "drain", "/sp"), True))
    assert not machine.view.draining


def test_a_stage_that_takes_no_notifications_gets_the_newest(tmp_path: Path) -> None:
    coordinator = World(tmp_path).coordinator
    for n in range(1, MANY + 1):
        coordinator._notify(NotificationKind.COMPLETE, CheckpointId(n))
    taken = coordinator.take_notifications(MIDDLE)
    assert [t.checkpoint for t in taken] == list(range(MANY - 99, MANY + 1))
    assert not coordinator.has_notifications(MIDDLE)
    coordinator._notify(NotificationKind.ABORTED, CheckpointId(MANY + 1))
    assert coordinator.take_notifications(MIDDLE) == [
        CheckpointNotification(NotificationKind.ABORTED, CheckpointId(MANY + 1))
    ]


def test_answered_requests_are_forgotten_by_the_coordinator(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        for _ in range(20):
            done = world.coordinator.request(RequestKind.MANUAL)
            world.complete()
            done.result(20)
        world.handled()
        assert world.coordinator._answers == {}


# -- positions of sources -----------------------------------------------------------------------


def read_to(**positions: int) -> list[OperatorSnapshot]:
    source = SourceState(positions, False)
    return [OperatorSnapshot("log", "log", "source", 1, 128, 1, source=source)]


def test_positions_of_savepoints_take_the_place_of_one() -> None:
    retained = RetainedPositions()
    retained.keep(0, read_to(a=5, b=7), savepoint=True)
    retained.keep(1, read_to(a=5, b=7))
    before = reachable(retained)
    for n in range(2, MANY):
        retained.keep(n, read_to(a=5 + n, b=7 + n), savepoint=n % 2 == 0)
        retained.forget([n - 1, n - 2])
    assert retained.lowest("log") == {"a": 5, "b": 7}
    assert reachable(retained) <= before + 20


def test_savepoints_taken_together_need_what_each_of_them_needs() -> None:
    for seed in range(200):
        random_ = random.Random(seed)
        retained = RetainedPositions()
        kept: list[dict[str, Positions]] = []
        for n in range(random_.randrange(1, 6)):
            splits = random_.sample("abc", random_.randrange(1, 4))
            positions = {split: random_.randrange(10) for split in splits}
            operators = read_to(**positions) if random_.random() < 0.9 else []
            retained.keep(n, operators, savepoint=random_.random() < 0.7)
            kept.append({"log": positions} if operators else {})
        found = [one.get("log", {}) for one in kept]
        common = set.intersection(*map(set, found))
        assert retained.lowest("log") == {s: min(p[s] for p in found) for s in common}, seed


# -- output of sinks ----------------------------------------------------------------------------


def test_output_of_checkpoints_and_disposed_savepoints_is_forgotten() -> None:
    disposed: set[int] = set()
    output = RetainedOutput(Earlier({}).read, lambda n: n in disposed)
    sizes = []
    removed: set[bytes] = set()
    for n in range(1, MANY, 2):
        output.keep(n, [snapshot([], [b"c%d" % n])])
        output.keep(n + 1, [snapshot([], [b"s%d" % n])], savepoint=True)
        gone = output.forget([n - 2] if n > 1 else [])
        removed.update(data for found in gone.values() for data in found.discarded)
        disposed.add(n - 9)
        if n in (1001, MANY - 1):
            sizes.append(reachable(output))
    assert sizes[1] <= sizes[0] + 20
    assert b"s%d" % (MANY - 101) in removed


def test_a_savepoint_is_kept_until_it_is_disposed_and_the_next_checkpoint_is_complete() -> None:
    disposed: set[int] = set()
    output = RetainedOutput(Earlier({}).read, lambda n: n in disposed)
    output.keep(1, [snapshot([], [b"a"])])
    output.keep(3, [snapshot([], [b"b"])], savepoint=True)
    disposed.add(3)
    # Checkpoint 2 was triggered before the savepoint: it does not hold what that holds.
    output.keep(2, [snapshot([], [b"a"])])
    assert output.forget([1])["files"].retained == [b"b", b"a"]
    output.keep(4, [snapshot([], [b"b", b"c"])])
    gone = output.forget([2])["files"]
    assert (gone.discarded, gone.retained) == ([b"a", b"b"], [b"b", b"c"])
    assert output.forget([4])["files"].retained == []


# -- statistics ---------------------------------------------------------------------------------


class NoHistory:
    def write(self, _: object) -> None:
        """Keep nothing."""


def test_statistics_of_checkpoints_that_are_over_are_forgotten() -> None:
    history: Any = NoHistory()
    tracker = CheckpointStatsTracker(history, AttemptId("a1"), lambda: 10.0)
    for n in range(1, MANY):
        request = CheckpointRequest(RequestKind.PERIODIC, "periodic")
        log = CheckpointEventLog(CheckpointId(n), lambda: 10.0)
        pending = PendingCheckpoint(CheckpointId(n), request, 1.0, 1.0, 99.0, log, {StageId(0)})
        tracker.record_long_running([pending], 10.0)
        tracker.record_failure(pending, CheckpointFailureReason.EXPIRED, "late")
    assert tracker._recorded == {}


def test_shared_files_of_discarded_checkpoints_are_forgotten(tmp_path: Path) -> None:
    registry = SharedStateRegistry()
    for n in range(1, MANY):
        lease = registry.acquire([tmp_path / str(n)])
        registry.transfer(CheckpointId(n), [lease])
        registry.unregister_checkpoints([CheckpointId(n - 1)])
    assert (len(registry._references), len(registry._checkpoints)) == (1, 1)


def test_reports_of_micro_batches_are_bounded() -> None:
    statistics = JobStatistics({"map": "map"})
    for n in range(2 * MANY + 1):
        statistics.add(MicroBatchReport(0, "map", n, 1, 0.0, 0.0, 0.0, 1, 1), {"map": {"n": 1}})
    assert len(statistics.reports()) == 1_000
    assert statistics.accumulators() == {"map.n": 2 * MANY + 1}
