"""What is removed of a job's files, and what stays because a snapshot or a successor needs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.decider import Request, RequestKind
from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.journal import AttemptStarted, EndStatus, JobEnded, Journal
from penstock.checkpoint.metadata import (
    CommittableState,
    OperatorSnapshot,
    SinkState,
    SourceState,
)
from penstock.checkpoint.pending import PendingCheckpoint
from penstock.checkpoint.store import Completed
from penstock.checkpoint.story import Story
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.errors import FencedError
from penstock.ids import AttemptId, JobKey, StageId
from penstock.job.kept_snapshots import KeptSnapshots
from penstock.savepoint.directory import dispose
from penstock.state.backends.base import FileRef, StagedName, StateRef
from penstock.state.files import file_name
from penstock.state.local_dir import HostDir
from penstock.task.layout import Layout
from tests.unit.checkpoint.coordinated import World


@pytest.fixture(autouse=True)
def _unarmed() -> Iterator[None]:
    yield
    disarm()


def kept(world: World) -> KeptSnapshots:
    return KeptSnapshots(world.dir, world.journal)


def layout(world: World, attempt: str, root: Path) -> Layout:
    work, local = root / f"penstock-{attempt}", HostDir(root, "penstock-local")
    return Layout(work, local, AttemptId(attempt), world.dir.path, JobKey("count"))


def completed(world: World, attempt: str, savepoint: Path | None = None) -> Completed:
    """Complete a snapshot: a state file of its own, a source, a sink."""
    checkpoint = world.store.next_id()
    name = file_name(1, StagedName(attempt, checkpoint, 0, 0, 0), ".delta")
    file = world.dir.shared / "count" / "0" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"state")
    state = StateRef(version=1, deltas=(FileRef(name, 1, 5, 0),))
    operators = [
        OperatorSnapshot("numbers", "numbers", "source", 1, 128, 1, source=position(checkpoint)),
        OperatorSnapshot("count", "count", "keyed", 1, 128, 1, "hashmap", "LONG", [state]),
        OperatorSnapshot("files", "files", "sink", 1, 128, 1, sink=output(checkpoint)),
    ]
    if savepoint is not None:
        operators.pop(1)
    kind = RequestKind.MANUAL if savepoint is None else RequestKind.SAVEPOINT
    request = Request(kind, "r1", None if savepoint is None else str(savepoint))
    pending = PendingCheckpoint(checkpoint, request, 1.0, 9.0, Story(checkpoint), {StageId(0)})
    result = world.store.write(pending, operators)
    world.store.win(result)
    return result


def position(checkpoint: int) -> SourceState:
    return SourceState({"log": 100 * checkpoint}, finished=False)


def output(checkpoint: int) -> SinkState:
    return SinkState([CommittableState(checkpoint, b"part %d" % checkpoint)], [b"pieces"])


def state_files(world: World) -> list[str]:
    return sorted(path.name.split("-")[1] for path in world.dir.shared.rglob("*.delta"))


# -- taken over while cleaning up ---------------------------------------------------------------


def test_a_driver_that_stops_before_it_cleans_up_spares_what_its_successor_wrote(
    tmp_path: Path,
) -> None:
    first = World(tmp_path)
    mine, later = layout(first, "a1", tmp_path), layout(first, "a2", tmp_path)

    def take_over() -> None:
        completed(World(tmp_path, attempt="a2"), "a2")
        for directory in (later.root, later.on_hosts.everywhere.here()):
            directory.mkdir(parents=True)

    arm(CrashPoint.RECOVERY_BEFORE_CLEANUP, action=take_over)
    kept(first).remove_leftovers(mine)
    assert first.dir.metadata(1).exists(), "the checkpoint of its successor"
    assert state_files(first) == ["a2"]
    assert later.root.is_dir()
    assert later.on_hosts.everywhere.here().is_dir()


def test_a_driver_that_knows_it_was_taken_over_cleans_up_nothing(tmp_path: Path) -> None:
    first = World(tmp_path)
    completed(World(tmp_path, attempt="a2"), "a2")
    for call in (
        lambda: kept(first).remove_leftovers(layout(first, "a1", tmp_path)),
        kept(first).sweep,
        kept(first).held_by_sinks,
        lambda: kept(first).forget_life("a1"),
    ):
        with pytest.raises(FencedError):
            call()
    assert first.dir.metadata(1).exists()


def test_what_dead_attempts_left_goes_and_what_counts_stays(tmp_path: Path) -> None:
    dead = World(tmp_path)
    completed(dead, "a1")
    never_won = dead.dir.chk(dead.store.next_id())
    never_won.mkdir()
    stray = dead.dir.shared / "count" / "0" / file_name(9, "a1-b9-t0-s0-a0", ".delta")
    stray.write_bytes(b"x")
    world = World(tmp_path, attempt="a2")
    kept(world).remove_leftovers(layout(world, "a2", tmp_path))
    assert world.dir.checkpoints_on_disk() == [1]
    assert not stray.exists()
    assert state_files(world) == ["a1"]


def test_a_damaged_checkpoint_stops_all_sweeping(tmp_path: Path) -> None:
    world = World(tmp_path)
    completed(world, "a1")
    world.dir.metadata(1).write_bytes(b"damaged")
    kept(world).sweep()
    assert state_files(world) == ["a1"]
    assert kept(world).held_by_sinks() is None


# -- savepoints, wherever they are --------------------------------------------------------------


def held(world: World) -> list[bytes]:
    found = kept(world).held_by_sinks()
    assert found is not None
    return found.get("files", [])


def lowest(world: World) -> dict[str, int]:
    return kept(world).hold(FileKeeper()).lowest("numbers")


def test_a_moved_savepoint_is_held_until_it_is_disposed_of(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    place = tmp_path / "savepoint"
    completed(world, "a1", place)
    before = (held(world), lowest(world))
    assert before == ([b"pieces", b"part 1"], {"log": 100})
    moved = place.rename(tmp_path / "elsewhere")
    assert (held(world), lowest(world)) == before
    dispose(moved)
    assert (held(world), lowest(world)) == ([], {})


def test_a_job_directory_that_was_moved_too_is_found_below_the_one_given(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    there = World(tmp_path / "moved", attempt="a2")
    assert held(there) == [b"pieces", b"part 1"]
    dispose(tmp_path / "savepoint", tmp_path / "moved")
    assert there.dir.savepoints_on_disk() == []
    assert held(there) == []


def test_disposing_of_a_savepoint_lets_no_other_job_forget_its_own(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "mine")
    shutil.rmtree(world.dir.path)
    other = World(tmp_path / "checkpoints")
    completed(other, "a1", tmp_path / "other")
    dispose(tmp_path / "mine")
    assert other.dir.savepoints_on_disk() == [1]


def test_a_savepoint_without_a_copy_is_held_while_it_is_where_it_was(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    world.dir.savepoint(1).unlink()
    assert held(world) == [b"pieces", b"part 1"]
    (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    assert held(world) == []


def test_a_damaged_copy_stops_all_sweeping(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    completed(world, "a1", tmp_path / "savepoint")
    world.dir.savepoint(1).write_bytes(b"damaged")
    assert kept(world).held_by_sinks() is None


def test_a_copy_of_a_savepoint_that_never_counted_goes(tmp_path: Path) -> None:
    dead = World(tmp_path / "checkpoints")
    completed(dead, "a1", tmp_path / "savepoint")
    uncounted = dead.dir.savepoint(dead.store.next_id())
    uncounted.write_bytes(b"x")
    world = World(tmp_path / "checkpoints", attempt="a2")
    kept(world).remove_leftovers(layout(world, "a2", tmp_path))
    assert world.dir.savepoints_on_disk() == [1]


# -- lives that are over ------------------------------------------------------------------------


def log_of(world: World, life: str) -> Path:
    directory = world.dir.connectors(life) / "numbers"
    directory.mkdir(parents=True)
    return directory


def begun(world: World, attempt: str, life: str) -> KeptSnapshots:
    """Let a driver take the job that is in this life."""
    journal = Journal(world.dir.storage, world.dir.key)
    journal.entries()
    journal.append(AttemptStarted(attempt, 2.0, "host", 2, life=life))
    return KeptSnapshots(world.dir, journal)


def over(world: World) -> None:
    world.journal.append(JobEnded("a1", EndStatus.FINISHED, 3.0))


def test_what_connectors_kept_in_a_life_that_is_over_goes(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = log_of(world, "a1")
    over(world)
    kept(world).forget_life("a1")
    assert not log.parent.parent.exists()
    kept(world).forget_life("a1")


def test_what_a_driver_had_no_time_for_is_done_in_the_next_life(tmp_path: Path) -> None:
    world = World(tmp_path)
    old, new = log_of(world, "a1"), log_of(world, "a2")
    over(world)
    begun(world, "a2", "a2").forget_life("a1")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_life_that_was_taken_up_again_is_not_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = log_of(world, "a1")
    over(world)
    begun(world, "a2", "a1").forget_life("a1")
    assert log.exists()


def test_a_life_stays_as_long_as_a_savepoint_is_of_it(tmp_path: Path) -> None:
    world = World(tmp_path / "checkpoints")
    log = log_of(world, "a1")
    completed(world, "a1", tmp_path / "savepoint")
    moved = (tmp_path / "savepoint").rename(tmp_path / "elsewhere")
    over(world)
    kept(world).forget_life("a1")
    assert log.exists()
    dispose(moved)
    kept(world).forget_life("a1")
    assert not log.exists()


@pytest.mark.parametrize("life", ["", "a2", "..", "notes"])
def test_nothing_but_a_life_of_the_past_is_forgotten(tmp_path: Path, life: str) -> None:
    world = World(tmp_path)
    later = log_of(world, "a2")
    over(world)
    kept(world).forget_life(life)
    assert later.exists()
    assert world.dir.journal.is_dir()
