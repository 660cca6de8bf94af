"""Leases on state files, and the sweep of files that no snapshot names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.shared_state_registry import SharedStateRegistry, sweep
from penstock.common.storage_url import Location
from penstock.ids import CheckpointId
from penstock.state.backends.refs import StagedName
from penstock.state.files import file_name

A, B, C, D = (Path(f"/jobs/j/shared/count/0/{name}") for name in "abcd")
FIRST, SECOND = CheckpointId(1), CheckpointId(2)


class Registry(SharedStateRegistry):
    """Remembers what it would delete."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[Location] = []

    def delete(self, file: Location) -> None:
        self.deleted.append(file)

    def deleted_now(self) -> list[Location]:
        deleted, self.deleted = self.deleted, []
        return deleted


def test_a_file_is_deleted_when_its_last_lease_is_released() -> None:
    registry = Registry()
    first, second = registry.acquire([A, B]), registry.acquire([B, C])
    first.release()
    assert registry.deleted_now() == [A]
    second.release()
    assert registry.deleted_now() == [B, C]


def test_a_file_of_a_retained_checkpoint_stays_whatever_newer_ones_do() -> None:
    registry = Registry()
    registry.register_checkpoint(FIRST, [A])
    newer = [CheckpointId(n) for n in range(2, 6)]
    for checkpoint in newer:
        registry.register_checkpoint(checkpoint, [A, B])
    registry.unregister_checkpoints(newer)
    assert registry.deleted_now() == [B]
    registry.unregister_checkpoints([FIRST])
    assert registry.deleted_now() == [A]


def test_a_file_counts_once_per_lease() -> None:
    registry = Registry()
    lease = registry.acquire([A, A])
    lease.add([A])
    lease.release()
    lease.release()
    assert registry.deleted == [A]


def test_adding_files_to_a_lease_keeps_those_it_has() -> None:
    registry = Registry()
    lease = registry.acquire([A])
    lease.add([B])
    assert registry.deleted_now() == []
    lease.release()
    assert registry.deleted_now() == [A, B]


def test_a_late_acknowledgement_of_an_aborted_checkpoint_frees_only_its_own_files() -> None:
    registry = Registry()
    registry.register_checkpoint(FIRST, [A])
    running, late = registry.acquire([A, B]), registry.acquire([A, B, C])
    late.release()
    assert registry.deleted_now() == [C]
    assert running.files == {A, B}


def test_the_running_state_moves_on_and_leaves_what_checkpoints_need() -> None:
    registry = Registry()
    running = registry.acquire([A, B])
    registry.register_checkpoint(FIRST, [A, B])
    running.replace([B, C])
    assert registry.deleted_now() == []
    running.replace([D])
    assert registry.deleted_now() == [C]
    registry.unregister_checkpoints([FIRST])
    assert registry.deleted_now() == [A, B]
    running.replace([])
    assert registry.deleted_now() == [D]


def test_a_checkpoint_takes_over_the_leases_of_its_snapshots() -> None:
    registry = Registry()
    leases = [registry.acquire([A, B]), registry.acquire([B, C])]
    registry.transfer(FIRST, leases)
    for lease in leases:
        lease.release()
    assert registry.deleted_now() == []
    registry.unregister_checkpoints([FIRST])
    assert registry.deleted_now() == [A, B, C]


def test_unregistering_an_unknown_checkpoint_deletes_nothing() -> None:
    registry = Registry()
    registry.unregister_checkpoints([SECOND])
    assert registry.deleted == []


def test_a_file_that_cannot_be_deleted_is_left(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    SharedStateRegistry().acquire([tmp_path / "directory", tmp_path / "missing"]).release()
    assert (tmp_path / "directory").exists()


FILES = st.lists(st.sampled_from([A, B, C, D]))
STEPS = st.tuples(st.sampled_from(["add", "replace", "release"]), st.integers(0, 3), FILES)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_exactly_those_files_are_deleted_that_lose_their_last_lease(
    steps: list[tuple[str, int, list[Path]]],
) -> None:
    registry = Registry()
    leases = [registry.acquire() for _ in range(4)]
    model: list[set[Path]] = [set() for _ in leases]
    for what, which, files in steps:
        before = set().union(*model)
        if what == "add":
            leases[which].add(files)
            model[which].update(files)
        elif what == "replace":
            leases[which].replace(files)
            model[which] = set(files)
        else:
            leases[which].release()
            model[which] = set()
        assert registry.deleted_now() == sorted(before.difference(*model))
        assert [lease.files for lease in leases] == model


# -- sweeping -----------------------------------------------------------------------------------


def tree(root: Path, *names: str) -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return paths


def test_a_sweep_deletes_unneeded_files_and_empty_directories(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    kept, gone, lone = tree(
        shared, "count/0/1-a1-b1.base", "count/0/2-a2-b2.delta", "old/3/1-a1-b1"
    )
    wanted = {"count/0/1-a1-b1.base"}
    assert sweep(shared, wanted, "a2") == ["count/0/2-a2-b2.delta", "old/3/1-a1-b1"]
    assert not gone.exists()
    assert not lone.exists()
    assert sorted(shared.rglob("*")) == [shared / "count", shared / "count/0", kept]
    assert sweep(shared, wanted, "a2") == []


def test_a_sweep_leaves_what_later_attempts_wrote(tmp_path: Path) -> None:
    delta, table = file_name(7, StagedName("a10", 7, 0, 0, 0), ".delta"), "~0f~000012.sst"
    table = file_name(7, StagedName("a3", 7, 0, 0, 0), table)
    files = [f"count/0/{delta}", f"count/0/{table}"]
    tree(tmp_path, *files)
    assert sweep(tmp_path, set(), "a2") == []
    assert sweep(tmp_path, set(), "a9") == files[1:]
    assert sweep(tmp_path, set(), "a10") == files[:1]


@pytest.mark.parametrize("name", ["notes.txt", "a1-b1", "1-a-b1", "1-b1-a1"])
def test_a_sweep_leaves_files_whose_name_has_no_attempt(tmp_path: Path, name: str) -> None:
    (file,) = tree(tmp_path, f"count/0/{name}")
    sweep(tmp_path, set(), "a9")
    assert file.exists()


def test_a_sweep_removes_an_empty_directory_and_bears_its_absence(tmp_path: Path) -> None:
    tree(tmp_path / "shared", "count/0/1-a1-b1")
    sweep(tmp_path / "shared", set(), "a1")
    assert list(tmp_path.rglob("*")) == []
    assert sweep(tmp_path / "nowhere", set(), "a1") == []


def test_a_sweep_does_not_follow_links_out_of_the_directory(tmp_path: Path) -> None:
    (outside,) = tree(tmp_path / "outside", "1-a1-b1")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "link").symlink_to(outside.parent)
    sweep(shared, set(), "a1")
    assert outside.exists()
