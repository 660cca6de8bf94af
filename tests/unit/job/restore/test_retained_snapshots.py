"""Which files of a job are removed, and which stay because a snapshot or successor needs them."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.job_dir import METADATA
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import (
    AttemptStarted,
    CheckpointDiscarded,
    JobEnded,
)
from penstock.checkpoint.storage.metadata import (
    CommittableState,
    OperatorSnapshot,
    SinkState,
    SourceState,
)
from penstock.common.job_status import JobStatus
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.errors import FencedError
from penstock.ids import AttemptId, JobKey
from penstock.job.restore import retained_snapshots
from penstock.job.restore.retained_snapshots import RetainedSnapshots
from penstock.savepoint.directory import dispose
from penstock.state.backends.refs import FileRef, StagedName, StateRef
from penstock.state.files import file_name
from penstock.state.local_dir import HostDir
from penstock.storage.local_storage import LocalStorage
from penstock.task.layout import AttemptLayout
from tests.local_paths import local
from tests.unit.checkpoint.coordinator.coordinated_job import World


@pytest.fixture(autouse=True)
def _unarmed() -> Iterator[None]:
    yield
    disarm()


def kept(world: World) -> RetainedSnapshots:
    return RetainedSnapshots(world.dir, world.journal)


def layout(world: World, attempt: str, root: Path) -> AttemptLayout:
    work, local = root / f"penstock-{attempt}", HostDir(root, "penstock-local")
    return AttemptLayout(work, local, AttemptId(attempt), world.dir.path, JobKey("count"))


def completed(world: World, attempt: str, savepoint: Path | None = None) -> CompletedCheckpoint:
    """Complete a snapshot with its own state file, a source and a sink."""
    checkpoint = world.store.next_id()
    name = file_name(1, StagedName(attempt, checkpoint, 0, 0, 0), ".delta")
    file = world.dir.shared / "count" / "0" / name
    local(file.parent).mkdir(parents=True, exist_ok=True)
    local(file).write_bytes(b"state")
    state = StateRef(version=1, deltas=(FileRef(name, 1, 5, 0),))
    operators = [
        OperatorSnapshot("numbers", "numbers", "source", 1, 128, 1, source=position(checkpoint)),
        OperatorSnapshot("count", "count", "keyed", 1, 128, 1, "hashmap", "LONG", [state]),
        OperatorSnapshot("files", "files", "sink", 1, 128, 1, sink=output(checkpoint)),
    ]
    if savepoint is not None:
        operators.pop(1)
    path = None if savepoint is None else str(savepoint)
    result = world.store.write(checkpoint, operators, 1.0, path)
    world.store.complete(result)
    return result


def position(checkpoint: int) -> SourceState:
    return SourceState({"log": 100 * checkpoint}, finished=False)


def output(checkpoint: int) -> SinkState:
    return SinkState([CommittableState(checkpoint, b"part %d" % checkpoint)], [b"pieces"])


def state_files(world: World) -> list[str]:
    return sorted(path.name.split("-")[1] for path in local(world.dir.shared).rglob("*.delta"))


# -- a takeover during cleanup ------------------------------------------------------------------


def test_a_driver_paused_before_cleanup_spares_files_of_its_successor(
    tmp_path: Path,
) -> None:
    first = World(tmp_path)
    mine, later = layout(first, "a1", tmp_path), layout(first, "a2", tmp_path)

    def take_over() -> None:
        completed(World(tmp_path, attempt="a2"), "a2")
        for directory in (later.root, later.attempt_dir.host_dir.resolve()):
            directory.mkdir(parents=True)

    arm(CrashPoint.RECOVERY_BEFORE_CLEANUP, action=take_over)
    kept(first).remove_leftovers(mine)
    assert local(first.dir.metadata(1)).exists(), "the checkpoint of its successor"
    assert state_files(first) == ["a2"]
    assert later.root.is_dir()
    assert later.attempt_dir.host_dir.resolve().is_dir()


def test_a_fenced_driver_cleans_up_nothing(tmp_path: Path) -> None:
    first = World(tmp_path)
    completed(World(tmp_path, attempt="a2"), "a2")
    for call in (
        lambda: kept(first).remove_leftovers(layout(first, "a1", tmp_path)),
        kept(first).clean_up,
        kept(first).referenced_by_sinks,
        lambda: kept(first).forget_lineage("a1"),
    ):
        with pytest.raises(FencedError):
            call()
    assert local(first.dir.metadata(1)).exists()


def test_files_of_dead_attempts_are_removed_and_completed_snapshots_stay(tmp_path: Path) -> None:
    dead = World(tmp_path)
    completed(dead, "a1")
    never_won = dead.dir.checkpoint_dir(dead.store.next_id())
    local(never_won).mkdir()
    stray = dead.dir.shared / "count" / "0" / file_name(9, "a1-b9-t0-s0-a0", ".delta")
    local(stray).write_bytes(b"x")
    world = World(tmp_path, attempt="a2")
    kept(world).remove_leftovers(layout(world, "a2", tmp_path))
    assert world.dir.checkpoints_on_disk() == [1]
    assert not local(stray).exists()
    assert state_files(world) == ["a1"]


def test_a_damaged_checkpoint_stops_all_cleanup(tmp_path: Path) -> None:
    world = World(tmp_path)
    completed(world, "a1")
    local(world.dir.metadata(1)).write_bytes(b"damaged")
    kept(world).clean_up()
    assert state_files(world) == ["a1"]
    assert kept(world).referenced_by_sinks() is None


class Unreadable(LocalStorage):
    """A store that refuses to return a checkpoint's metadata for a while."""

    def read(self, path: str) -> bytes:
        if path == METADATA:
            raise PermissionError(errno.EACCES, "access is denied", str(self.root / path))
        return super().read(path)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_checkpoint_that_cannot_be_read_now_keeps_its_files_also_if_it_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    first = World(tmp_path)
    checkpoint = completed(first, "a1").checkpoint
    if is_named:
        first.journal.append(CheckpointDiscarded(checkpoint, "a1", 1.0))
    given = first.dir.to_journal_path(first.dir.checkpoint_dir(checkpoint)) if is_named else None
    first.journal.append(AttemptStarted("a2", 2.0, "host", 2, restored_path=given))
    first.journal.append(AttemptStarted("a3", 3.0, "host", 3, fresh=True))
    world = World(tmp_path, attempt="a4")
    with monkeypatch.context() as patched:
        patched.setattr(retained_snapshots, "storage_at", Unreadable)
        kept(world).clean_up()
        assert kept(world).referenced_by_sinks() is None
    assert state_files(world) == ["a1"]
    kept(world).clean_up()
    assert state_files(world) == ["a1"]


# -- savepoints ---------------------------------------------------------------------------------


def referenced(world: World) -> list[bytes]:
    found = kept(world).referenced_by_sinks()
    assert found is not None
    return found.get("files", [])


def lowest(world: World) -> dict[str, int]:
    return kept(world).register(SharedStateRegistry()).lowest("numbers")


def test_a_moved_savepoint_is_referenced_until_it_is_disposed(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    place = tmp_path / "savepoint"
    completed(world, "a1", place)
    before = (referenced(world), lowest(world))
    assert before == ([b"pieces", b"part 1"], {"log": 100})
    moved = place.rename(tmp_path / "elsewhere")
    assert (referenced(world), lowest(world)) == before
    dispose(moved)
    assert (referenced(world), lowest(world)) == ([], {})


def test_a_moved_job_directory_is_found_below_the_configured_one(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    there = World(tmp_path / "moved", attempt="a2")
    assert referenced(there) == [b"pieces", b"part 1"]
    dispose(tmp_path / "savepoint", tmp_path / "moved")
    assert there.dir.savepoints_on_disk() == []
    assert referenced(there) == []


def test_disposing_a_savepoint_does_not_affect_other_jobs(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "mine")
    shutil.rmtree(local(world.dir.path))
    other = World(tmp_path / "checkpoints")
    other.clock.advance(1.0)
    completed(other, "a1", tmp_path / "other")
    dispose(tmp_path / "mine")
    assert other.dir.savepoints_on_disk() == [1]


def test_a_savepoint_without_a_metadata_copy_is_referenced_while_it_exists(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    local(world.dir.savepoint(1)).unlink()
    assert referenced(world) == [b"pieces", b"part 1"]
    (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    assert referenced(world) == []


def test_a_damaged_metadata_copy_stops_all_cleanup(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    local(world.dir.savepoint(1)).write_bytes(b"damaged")
    assert kept(world).referenced_by_sinks() is None


def test_metadata_copies_of_uncompleted_savepoints_are_removed(tmp_path: Path) -> None:
    dead = World(tmp_path / "checkpoints")
    completed(dead, "a1", tmp_path / "savepoint")
    uncounted = dead.dir.savepoint(dead.store.next_id())
    local(uncounted).write_bytes(b"x")
    world = World(tmp_path / "checkpoints", attempt="a2")
    kept(world).remove_leftovers(layout(world, "a2", tmp_path))
    assert world.dir.savepoints_on_disk() == [1]


# -- ended lineages -----------------------------------------------------------------------------


def log_of(world: World, lineage: str) -> Path:
    directory = local(world.dir.connectors(lineage)) / "numbers"
    directory.mkdir(parents=True)
    return directory


def begun(world: World, attempt: str, lineage: str) -> RetainedSnapshots:
    """Let a driver start an attempt in this lineage."""
    journal = Journal(world.dir.storage, world.dir.key)
    journal.entries()
    journal.append(AttemptStarted(attempt, 2.0, "host", 2, lineage=lineage))
    return RetainedSnapshots(world.dir, journal)


def over(world: World) -> None:
    world.journal.append(JobEnded.of("a1", JobStatus.FINISHED, 3.0))


def test_connector_files_of_an_ended_lineage_are_removed(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = log_of(world, "a1")
    over(world)
    kept(world).forget_lineage("a1")
    assert not log.parent.parent.exists()
    kept(world).forget_lineage("a1")


def test_cleanup_that_a_dead_driver_missed_is_done_by_the_next_lineage(tmp_path: Path) -> None:
    world = World(tmp_path)
    old, new = log_of(world, "a1"), log_of(world, "a2")
    over(world)
    begun(world, "a2", "a2").forget_lineage("a1")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_resumed_lineage_has_not_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = log_of(world, "a1")
    over(world)
    begun(world, "a2", "a1").forget_lineage("a1")
    assert log.exists()


def test_connector_files_stay_as_long_as_a_savepoint_has_their_lineage(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    log = log_of(world, "a1")
    completed(world, "a1", tmp_path / "savepoint")
    moved = (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    over(world)
    kept(world).forget_lineage("a1")
    assert log.exists()
    dispose(moved)
    kept(world).forget_lineage("a1")
    assert not log.exists()


@pytest.mark.parametrize("lineage", ["", "a2", "..", "notes"])
def test_only_files_of_a_past_lineage_are_removed(tmp_path: Path, lineage: str) -> None:
    world = World(tmp_path)
    later = log_of(world, "a2")
    over(world)
    kept(world).forget_lineage(lineage)
    assert later.exists()
    assert local(world.dir.journal).is_dir()


def test_a_checkpoint_that_a_user_named_is_spared_after_any_number_of_attempts(
    tmp_path: Path,
) -> None:
    first = World(tmp_path)
    named = completed(first, "a1").checkpoint
    first.store.next_id()
    # As a driver leaves it that has discarded it and died: the journal does not list it.
    first.journal.append(CheckpointDiscarded(named, "a1", 1.0))
    journal = Journal(first.dir.storage, "count", summarise_after=20)
    journal.entries()
    given = first.dir.to_journal_path(str(first.dir.checkpoint_dir(named)))
    journal.append(AttemptStarted("a2", 2.0, "host", 2, restored_path=given))
    for n in range(3, 300):
        journal.append(AttemptStarted(f"a{n}", 2.0, "host", 2, fresh=n == 3))
    world = World(tmp_path, attempt="a300")
    kept(world).clean_up()
    assert world.dir.checkpoints_on_disk() == [named]
    assert len(state_files(world)) == 1
