"""Completed checkpoints on disk and in the journal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointDiscarded,
    CheckpointIdsReserved,
)
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.errors import FencedError
from penstock.ids import CheckpointId
from penstock.savepoint.directory import dispose
from tests.local_paths import local
from tests.unit.checkpoint.coordinator.coordinated_job import World, another_driver

OPERATOR = OperatorSnapshot("count", "count", "map", 1, 128, 1)


def done(world: World, n: int) -> CompletedCheckpoint:
    completed = world.store.write(CheckpointId(n), [OPERATOR], 1.0)
    world.store.complete(completed)
    return completed


def test_ids_are_reserved_before_they_are_used_and_never_used_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    given = [world.store.next_id() for _ in range(12)]
    assert given == list(range(1, 13))
    reserved = [e.upto for e in world.entries() if isinstance(e, CheckpointIdsReserved)]
    assert reserved == [10, 20]
    assert World(tmp_path, attempt="a2").store.next_id() > 12


def test_what_is_written_counts_only_once_it_has_won(tmp_path: Path) -> None:
    world = World(tmp_path)
    completed = world.store.write(CheckpointId(1), [OPERATOR], 1.0)
    assert local(world.dir.metadata(1)).exists()
    assert world.journal.state().restorable == ()
    world.store.complete(completed)
    (entry,) = world.journal.state().restorable
    assert (entry.checkpoint, entry.path, entry.metadata_crc) == (1, "chk-1", completed.crc)
    assert world.store.retained == [1]


def test_metadata_says_what_it_is_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.write(CheckpointId(1), [OPERATOR], 1.0)
    read = world.metadata(local(world.dir.checkpoint_dir(1)))
    assert (read.job_id, read.job_name, read.attempt) == ("count", "count", "a1")
    assert (read.checkpoint, read.kind, read.operators) == (1, "checkpoint", [OPERATOR])


def test_a_savepoint_is_written_to_the_requested_path_and_not_retained(tmp_path: Path) -> None:
    world = World(tmp_path)
    completed = world.store.write(CheckpointId(1), [OPERATOR], 1.0, str(tmp_path / "sp"))
    world.store.complete(completed)
    assert world.metadata(tmp_path / "sp").kind == "savepoint"
    assert world.store.retained == []
    assert world.journal.state().restorable == ()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.write(CheckpointId(1), [OPERATOR], 1.0)
    with pytest.raises(FileExistsError):
        world.store.write(CheckpointId(1), [], 1.0)


def test_the_oldest_go_when_there_are_more_than_retained(tmp_path: Path) -> None:
    world = World(tmp_path, retained=2)
    for n in (1, 2, 3):
        done(world, n)
    assert world.store.discard_subsumed() == [1]
    assert world.store.discard_subsumed() == []
    assert world.dir.checkpoints_on_disk() == [2, 3]
    gone = [e.checkpoint for e in world.entries() if isinstance(e, CheckpointDiscarded)]
    assert gone == [1]


def test_a_new_attempt_retains_what_the_one_before_completed(tmp_path: Path) -> None:
    done(World(tmp_path), 1)
    store = World(tmp_path, attempt="a2").store
    assert store.retained == [1]


def test_a_fresh_attempt_leaves_the_checkpoints_of_the_lineage_before_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    journal = Journal(world.dir.storage, "count")
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "host", 2, fresh=True))
    later = World(tmp_path, attempt="a3")
    assert later.store.retained == []
    done(later, 2)
    later.store.discard_subsumed()
    assert later.dir.checkpoints_on_disk() == [1, 2]


def test_a_fenced_driver_completes_discards_and_reserves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    done(world, 1)
    second = world.store.write(CheckpointId(2), [OPERATOR], 1.0)
    another_driver(world)
    for call in (
        lambda: world.store.complete(second),
        lambda: world.store.discard([CheckpointId(1)]),
        lambda: world.store.commits_started(CheckpointId(1)),
        lambda: world.store.commits_done(CheckpointId(1)),
        world.store.next_id,
    ):
        with pytest.raises(FencedError):
            call()
    assert local(world.dir.metadata(1)).exists()


@pytest.mark.parametrize("has_committed", [False, True])
def test_a_savepoint_is_restorable_once_a_stop_has_started_to_commit_it(
    tmp_path: Path, has_committed: bool
) -> None:
    world = World(tmp_path)
    done(world, 1)
    stop = world.store.write(CheckpointId(2), [OPERATOR], 1.0, str(tmp_path / "sp"))
    world.store.complete(stop)
    if has_committed:
        world.store.commits_started(stop.checkpoint)
    restorable = [c.checkpoint for c in world.journal.state().restorable]
    assert restorable == ([1, 2] if has_committed else [1])
    assert World(tmp_path, attempt="a2").store.retained == [1]


def test_savepoints_and_abandoned_checkpoints_are_discarded_when_users_have_deleted_them(
    tmp_path: Path,
) -> None:
    first = World(tmp_path / "jobs")
    done(first, first.store.next_id())
    for name in ("a", "b"):
        path = str(tmp_path / name)
        first.store.complete(first.store.write(first.store.next_id(), [OPERATOR], 1.0, path))
    journal = Journal(first.dir.storage, "count")
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "host", 2, fresh=True))
    world = World(tmp_path / "jobs", attempt="a3")
    done(world, 20)
    world.store.complete(world.store.write(CheckpointId(21), [OPERATOR], 1.0, str(tmp_path / "c")))
    assert world.store.discard_deleted() == []
    known = [c.checkpoint for c in world.journal.state().completed]
    (tmp_path / "b").rename(tmp_path / "moved")
    assert world.store.discard_deleted() == []
    dispose(tmp_path / "a")
    dispose(tmp_path / "c")
    shutil.rmtree(local(world.dir.checkpoint_dir(1)))
    assert world.store.discard_deleted() == [1, known[1], 21]
    assert world.store.discard_deleted() == []
    assert [c.checkpoint for c in world.journal.state().completed] == [known[2], 20]
    assert world.store.retained == [20]


def test_an_unlisted_checkpoint_that_a_user_named_is_forgotten_when_it_is_deleted(
    tmp_path: Path,
) -> None:
    first = World(tmp_path)
    first.store.write(CheckpointId(7), [OPERATOR], 1.0)
    journal = Journal(first.dir.storage, "count")
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "host", 2, restored_path="chk-7"))
    world = World(tmp_path, attempt="a3")
    assert world.store.discard_deleted() == []
    assert world.journal.state().named == (7,)
    shutil.rmtree(local(world.dir.checkpoint_dir(7)))
    assert world.store.discard_deleted() == [7]
    assert world.store.discard_deleted() == []
    assert world.journal.state().named == ()
