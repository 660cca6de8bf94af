"""Completed checkpoints on disk and in the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.cut import Passing
from penstock.checkpoint.decider import Request, RequestKind
from penstock.checkpoint.history import RecordStatus
from penstock.checkpoint.journal import (
    AttemptStarted,
    CheckpointDiscarded,
    CheckpointIdsReserved,
    Journal,
)
from penstock.checkpoint.metadata import ChannelStats, OperatorSnapshot, SubtaskStats
from penstock.checkpoint.pending import Answer, PendingCheckpoint, StageSnapshot
from penstock.checkpoint.store import Completed
from penstock.checkpoint.story import Story, StoryEvent
from penstock.errors import FencedError
from penstock.ids import CheckpointId, StageId
from tests.unit.checkpoint.coordinated import World, another_driver

OPERATOR = OperatorSnapshot("count", "count", "map", 1, 128, 1)


def pending(n: int, kind: RequestKind = RequestKind.MANUAL, path: Path | None = None) -> Pending:
    request = Request(kind, "r1", None if path is None else str(path))
    checkpoint = CheckpointId(n)
    return PendingCheckpoint(checkpoint, request, 1.0, 9.0, Story(checkpoint), {StageId(0)})


Pending = PendingCheckpoint


def done(world: World, n: int) -> Completed:
    completed = world.store.write(pending(n), [OPERATOR])
    world.store.win(completed)
    return completed


def test_ids_are_reserved_before_they_are_given_out_and_never_come_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    given = [world.store.next_id() for _ in range(12)]
    assert given == list(range(1, 13))
    reserved = [e.upto for e in world.entries() if isinstance(e, CheckpointIdsReserved)]
    assert reserved == [10, 20]
    assert World(tmp_path, attempt="a2").store.next_id() > 12


def test_what_is_written_counts_only_once_it_has_won(tmp_path: Path) -> None:
    world = World(tmp_path)
    completed = world.store.write(pending(1), [OPERATOR])
    assert world.dir.metadata(1).exists()
    assert world.journal.state().restorable == ()
    world.store.win(completed)
    (entry,) = world.journal.state().restorable
    assert (entry.checkpoint, entry.path, entry.metadata_crc) == (1, "chk-1", completed.crc)
    assert world.store.retained == [1]


def test_metadata_says_what_it_is_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.write(pending(1), [OPERATOR])
    read = world.metadata(world.dir.chk(1))
    assert (read.job_id, read.job_name, read.attempt) == ("count", "count", "a1")
    assert (read.checkpoint, read.kind, read.operators) == (1, "checkpoint", [OPERATOR])


def test_a_savepoint_lies_where_it_was_asked_for_and_is_not_retained(tmp_path: Path) -> None:
    world = World(tmp_path)
    wanted = pending(1, RequestKind.SAVEPOINT, tmp_path / "sp")
    completed = world.store.write(wanted, [OPERATOR])
    world.store.win(completed)
    assert world.metadata(tmp_path / "sp").kind == "savepoint"
    assert world.store.retained == []
    assert world.journal.state().restorable == ()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.write(pending(1), [OPERATOR])
    with pytest.raises(FileExistsError):
        world.store.write(pending(1), [])


def test_the_oldest_go_when_there_are_more_than_retained(tmp_path: Path) -> None:
    world = World(tmp_path, retained=2)
    for n in (1, 2, 3):
        done(world, n)
    assert world.store.retain() == [1]
    assert world.store.retain() == []
    assert world.dir.checkpoints_on_disk() == [2, 3]
    gone = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointDiscarded)]
    assert gone == [1]


def test_a_new_attempt_retains_what_the_one_before_completed(tmp_path: Path) -> None:
    done(World(tmp_path), 1)
    store = World(tmp_path, attempt="a2").store
    assert store.retained == [1]


def test_a_fresh_attempt_leaves_the_checkpoints_of_the_life_before_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    journal = Journal(world.dir.storage, "count")
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "host", 2, fresh=True))
    later = World(tmp_path, attempt="a3")
    assert later.store.retained == []
    done(later, 2)
    later.store.retain()
    assert later.dir.checkpoints_on_disk() == [1, 2]


def test_a_driver_that_was_taken_over_wins_discards_and_reserves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    second = world.store.write(pending(2), [OPERATOR])
    another_driver(world)
    for call in (
        lambda: world.store.win(second),
        lambda: world.store.discard([CheckpointId(1)]),
        lambda: world.store.commits_start(CheckpointId(1)),
        lambda: world.store.commits_done(CheckpointId(1)),
        world.store.next_id,
    ):
        with pytest.raises(FencedError):
            call()
    assert world.dir.metadata(1).exists()


@pytest.mark.parametrize("has_committed", [False, True])
def test_a_savepoint_is_gone_on_from_once_a_stop_has_begun_to_commit_it(
    tmp_path: Path, has_committed: bool
) -> None:
    world = World(tmp_path)
    done(world, 1)
    stop = world.store.write(pending(2, RequestKind.STOP, tmp_path / "sp"), [OPERATOR])
    world.store.win(stop)
    if has_committed:
        world.store.commits_start(stop.checkpoint)
    restorable = [c.checkpoint for c in world.journal.state().restorable]
    assert restorable == ([1, 2] if has_committed else [1])
    assert World(tmp_path, attempt="a2").store.retained == [1]


def test_a_history_that_cannot_be_written_fails_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.dir.path / "history").write_text("in the way")
    world.store.record(pending(1), None, "expired")


def test_what_barriers_held_up_and_overtook_is_added_up_in_the_record(tmp_path: Path) -> None:
    world = World(tmp_path)
    stats = [SubtaskStats(bytes_held=5, in_flight_bytes=3), SubtaskStats(bytes_held=2)]
    channels = [ChannelStats("src", "Source", 0, 7, 3, 1)]
    checkpoint = pending(1)
    checkpoint.passing = Passing.UNALIGNED
    operator = OperatorSnapshot("c", "c", "map", 2, 128, 1, stats=stats, channels=channels)
    checkpoint.acknowledge(StageId(0), StageSnapshot([operator], []))
    world.store.record(checkpoint, None, "expired")
    record = world.history.checkpoint(1)
    assert record is not None
    assert (record.barriers, record.bytes_held, record.in_flight_bytes) == ("unaligned", 7, 3)
    assert record.operators[0].channels == channels


def test_what_is_done_behind_its_completion_is_not_a_checkpoints_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    checkpoint.story = Story(checkpoint.id, clock=lambda: checkpoint.triggered + 0.25)
    checkpoint.story.tell(StoryEvent.COMPLETED)
    world.store.record(checkpoint, done(world, 1))
    record = world.history.checkpoint(1)
    assert record is not None
    assert record.duration_s == 0.25


def test_a_checkpoint_is_written_down_while_it_is_under_way_if_that_takes_long(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    began = checkpoint.triggered
    assert world.store.note_long_ones([checkpoint], began + 0.25) == [0.75]
    assert world.history.checkpoints() == []
    assert world.store.note_long_ones([checkpoint], began + 1) == []
    (record,) = world.history.checkpoints()
    assert (record.status, record.operators) == (RecordStatus.PENDING, [])


def test_it_is_written_again_when_it_has_come_further_and_only_then(tmp_path: Path) -> None:
    world = World(tmp_path)
    checkpoint = pending(1)
    world.store.note_long_ones([checkpoint], 100.0)
    path = world.dir.path / "history" / "000000000001.json"
    path.unlink()
    world.store.note_long_ones([checkpoint], 101.0)
    assert not path.exists()
    checkpoint.acknowledge(StageId(0), StageSnapshot([OPERATOR], []))
    world.store.note_long_ones([checkpoint], 102.0)
    (record,) = world.history.checkpoints()
    assert [operator.uid for operator in record.operators] == ["count"]
    checkpoint.passing = Passing.UNALIGNED
    world.store.note_long_ones([checkpoint], 103.0)
    (record,) = world.history.checkpoints()
    assert record.barriers == "unaligned"
    world.store.record(checkpoint, None, "expired")
    (record,) = world.history.checkpoints()
    assert record.status is RecordStatus.FAILED


# -- a checkpoint under way ---------------------------------------------------------------------


def test_a_stage_acknowledges_once() -> None:
    checkpoint, snapshot = pending(1), StageSnapshot([OPERATOR], [])
    assert not checkpoint.is_complete
    assert checkpoint.acknowledge(StageId(0), snapshot) is Answer.ACCEPTED
    assert checkpoint.is_complete
    assert checkpoint.acknowledge(StageId(0), snapshot) is Answer.DUPLICATE
    assert list(checkpoint.operators()) == [OPERATOR]


@pytest.mark.parametrize(
    ("kind", "path", "rolls_all", "ends"),
    [
        (RequestKind.PERIODIC, None, False, False),
        (RequestKind.MANUAL, None, False, False),
        (RequestKind.SAVEPOINT, Path("/sp"), True, False),
        (RequestKind.FINAL, None, True, True),
        (RequestKind.FINAL, Path("/sp"), True, True),
        (RequestKind.STOP, Path("/sp"), True, True),
    ],
)
def test_what_a_request_means_for_sinks_and_for_the_job(
    kind: RequestKind, path: Path | None, rolls_all: bool, ends: bool
) -> None:
    checkpoint = pending(1, kind, path)
    assert (checkpoint.rolls_all, checkpoint.ends_the_job) == (rolls_all, ends)
    assert checkpoint.is_savepoint == (path is not None)
