"""What only the RocksDB backend can get wrong."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CorruptStateError
from penstock.state.backends import local_stores
from penstock.state.backends.lmdb.backend import HashMapBackend
from penstock.state.backends.refs import FileRef, LocalSnapshot, StagedName, StateLocation, StateRef
from penstock.state.backends.rocksdb import database as rocksdb_tree
from penstock.state.backends.rocksdb.backend import RocksDbBackend
from penstock.state.backends.rocksdb.database import RocksDbDatabase
from penstock.state.backends.version_marker import VersionMarker
from penstock.state.delta import Delta
from penstock.state.local_dir import choose_local_dir
from tests.local_paths import local

Puts = dict[bytes, bytes]

ONE = b"\0\1"
TWO = b"\0\2"


@pytest.fixture
def place() -> Iterator[StateLocation]:
    # RocksDB flushes every file to disk: in shared memory that takes no time.
    with tempfile.TemporaryDirectory(dir=choose_local_dir()) as root:
        yield StateLocation(Path(root, "shared"), Path(root, "local"))


@pytest.fixture
def backend() -> RocksDbBackend:
    return RocksDbBackend()


def staged(number: int) -> StagedName:
    return StagedName("a", number, 0, 0, number)


def publish(backend: RocksDbBackend, place: StateLocation, ref: StateRef, puts: Puts) -> StateRef:
    version = ref.version + 1
    keys = sorted(puts)
    delta = Delta(keys, [puts[key] for key in keys])
    return backend.publish(ref, version, backend.stage(place, delta, staged(version), version))


def contents(backend: RocksDbBackend, place: StateLocation, ref: StateRef) -> Puts:
    with backend.open(place, ref) as store:
        return dict(store.scan(b""))


def many(value: bytes, count: int = 2000) -> Puts:
    return {
        ONE + b"%06d" % number: value + os.urandom(16).hex().encode() for number in range(count)
    }


def checkpoint(
    backend: RocksDbBackend, place: StateLocation, ref: StateRef, number: int
) -> tuple[StateRef, LocalSnapshot]:
    """Do what a task and a background task do for a checkpoint; return the rebased ref."""
    with backend.open(place, ref) as store:
        snapshot = store.snapshot(staged(number))
    assert snapshot is not None
    compacted = backend.compact(place, ref, staged(number), snapshot)
    assert compacted is not None
    assert not compacted.deltas
    return backend.rebase(ref, compacted), snapshot


def tables_of(ref: StateRef) -> set[FileRef]:
    assert ref.tables is not None
    return {file for file in ref.tables.files if file.name.endswith(".sst")}


def elsewhere(place: StateLocation, host: str = "elsewhere") -> StateLocation:
    return replace(place, local_dir=place.local_dir / host)


def test_a_second_snapshot_sends_only_what_is_new(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    first = publish(backend, place, StateRef(0), many(b"1"))
    first, _ = checkpoint(backend, place, first, 100)
    sent = set(place.shared_dir.iterdir())
    second = publish(backend, place, first, {ONE + b"000001": b"changed"})
    delta = second.deltas[0]
    second, _ = checkpoint(backend, place, second, 101)
    new = set(place.shared_dir.iterdir()) - sent - {place.shared_dir / delta.name}
    assert {path.name for path in new} == {f.name for f in set(second.files) - set(first.files)}
    assert sum(path.stat().st_size for path in new) < 10_000
    assert max(file.size for file in tables_of(first) & tables_of(second)) > 10_000
    assert contents(backend, elsewhere(place), second)[ONE + b"000001"] == b"changed"


def test_a_full_snapshot_shares_nothing(place: StateLocation) -> None:
    full = RocksDbBackend(durable=True, incremental=False)
    first, _ = checkpoint(full, place, publish(full, place, StateRef(0), many(b"1")), 100)
    second, _ = checkpoint(full, place, publish(full, place, first, {ONE: b"x"}), 101)
    assert not set(first.files) & set(second.files)
    again, _ = checkpoint(full, place, second, 102)
    assert not set(again.files) & set(second.files)
    assert contents(full, elsewhere(place), again) == contents(full, place, second)


def test_a_compaction_without_changes_only_consumes_its_snapshot(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref, _ = checkpoint(backend, place, publish(backend, place, StateRef(0), many(b"1")), 100)
    with backend.open(place, ref) as store:
        snapshot = store.snapshot(staged(101))
    assert snapshot is not None
    assert backend.compact(place, ref, staged(101), snapshot) is None
    assert not Path(snapshot.path).exists()


def test_a_snapshot_is_used_up_and_may_be_lost(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    wanted = many(b"1")
    ref = publish(backend, place, StateRef(0), wanted)
    _, snapshot = checkpoint(backend, place, ref, 100)
    assert not Path(snapshot.path).exists()
    for number, lost in enumerate([snapshot, None, LocalSnapshot(snapshot.path, 99)]):
        compacted = backend.compact(elsewhere(place), ref, staged(200 + number), lost)
        assert compacted is not None
        assert contents(backend, elsewhere(place, f"host{number}"), compacted) == wanted
    assert not list(elsewhere(place).local_dir.glob("private-*"))


def test_later_versions_do_not_change_a_snapshot(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = publish(backend, place, StateRef(0), {ONE: b"1"})
    with backend.open(place, ref) as store:
        snapshot = store.snapshot(staged(100))
    later = publish(backend, place, ref, {ONE: b"2", TWO: b"2"})
    contents(backend, place, later)
    compacted = backend.compact(place, ref, staged(100), snapshot)
    assert compacted is not None
    assert contents(backend, elsewhere(place), compacted) == {ONE: b"1"}
    rebased = backend.rebase(later, compacted)
    assert (rebased.tables, len(rebased.deltas)) == (compacted.tables, 1)
    assert contents(backend, elsewhere(place), rebased) == {ONE: b"2", TWO: b"2"}


def test_sst_files_of_the_same_number_are_distinguished(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    """A subtask that moves to another host and back continues with its local store there."""
    here, there = elsewhere(place, "here"), elsewhere(place, "there")
    base, _ = checkpoint(backend, here, publish(backend, here, StateRef(0), many(b"1")), 100)
    moved = publish(backend, here, base, many(b"2"))
    contents(backend, here, moved)
    # There, the delta becomes a table with the number it also has here.
    compacted, _ = checkpoint(backend, there, moved, 101)
    back = publish(backend, here, moved, many(b"3"))
    contents(backend, here, back)
    rebased, _ = checkpoint(backend, here, backend.rebase(back, compacted), 102)
    numbers = [name.rpartition("~")[2] for name in (f.name for f in rebased.files)]
    assert len(set(numbers)) == len(numbers)
    assert contents(backend, elsewhere(place, "third"), rebased) == contents(backend, here, back)


def test_a_new_attempt_continues_with_the_files_of_the_previous_one(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    restored, _ = checkpoint(backend, place, publish(backend, place, StateRef(0), many(b"1")), 9)
    contents(backend, place, publish(backend, place, restored, {ONE: b"rolled back"}))
    attempt = elsewhere(place, "attempt-2")
    keys = Delta([TWO], [b"kept"])
    again = backend.stage(attempt, keys, StagedName("b", 2, 0, 0, 0), 2)
    ref = backend.publish(restored, 2, again)
    assert contents(backend, attempt, ref) == {**contents(backend, place, restored), TWO: b"kept"}
    assert set(checkpoint(backend, attempt, ref, 10)[0].files) & set(restored.files)


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, damage_remove])
def test_a_damaged_file_is_named(
    backend: RocksDbBackend, place: StateLocation, damage: Callable[[Path], None]
) -> None:
    ref, _ = checkpoint(backend, place, publish(backend, place, StateRef(0), many(b"1")), 100)
    ref = publish(backend, place, ref, {TWO: b"2"})
    backend.verify(place, ref)
    assert len(ref.files) >= 4
    for file in ref.files:
        path = place.shared_dir / file.name
        good = path.read_bytes()
        damage(path)
        with pytest.raises(CorruptStateError) as caught:
            backend.verify(place, ref)
        assert caught.value.path == str(path)
        with pytest.raises(CorruptStateError) as caught:
            backend.open(elsewhere(place), ref)
        assert caught.value.path == str(path)
        with pytest.raises(CorruptStateError) as caught:
            list(backend.entries(elsewhere(place), ref))
        assert caught.value.path == str(path)
        backend.verify(place, ref, known={file.name})
        path.write_bytes(good)
    assert len(contents(backend, elsewhere(place), ref)) == 2001
    assert not list(elsewhere(place).local_dir.glob("private-*"))


def test_a_damaged_delta_leaves_the_local_store_where_it_was(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    first = publish(backend, place, StateRef(0), {ONE: b"1"})
    second = publish(backend, place, first, {ONE: b"2"})
    contents(backend, place, first)
    damage_truncate(local(backend.files(place, second)[1]))
    with pytest.raises(CorruptStateError):
        backend.open(place, second)
    local(backend.files(place, first)[0]).unlink()
    assert contents(backend, place, first) == {ONE: b"1"}


def test_catching_up_reads_only_what_is_missing(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    first = publish(backend, place, StateRef(0), {ONE: b"1"})
    contents(backend, place, first)
    local(backend.files(place, first)[0]).unlink()
    second = publish(backend, place, first, {TWO: b"2"})
    assert contents(backend, place, second) == {ONE: b"1", TWO: b"2"}


def test_a_local_store_of_another_history_is_rebuilt(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    contents(backend, place, publish(backend, place, StateRef(0), {ONE: b"wrong"}))
    file = backend.stage(place, Delta([TWO], [b"right"]), StagedName("a", 1, 1, 0, 77), 1)
    assert contents(backend, place, backend.publish(StateRef(0), 1, file)) == {TWO: b"right"}


def local_tables(place: StateLocation) -> list[Path]:
    return sorted(place.local_dir.glob("rocksdb-*/*.sst"), key=lambda path: path.stat().st_size)


def test_a_torn_local_store_is_rebuilt(backend: RocksDbBackend, place: StateLocation) -> None:
    wanted = many(b"1")
    ref = publish(backend, place, StateRef(0), wanted)
    contents(backend, place, ref)
    for damage in (damage_truncate, damage_remove):
        damage(local_tables(place)[-1])
        assert contents(backend, place, ref) == wanted
    for name in ("CURRENT", "MANIFEST-*"):
        [path] = place.local_dir.glob(f"rocksdb-*-0/{name}")
        path.write_bytes(b"rubbish")
        assert contents(backend, place, ref) == wanted


READS: list[Callable[[Any], object]] = [
    lambda store: [store.get(key) for key in many(b"")],
    lambda store: store.get_many(sorted(many(b""))),
    lambda store: list(store.scan(ONE)),
]


@pytest.mark.parametrize("read", READS)
def test_a_bad_block_is_never_skipped_and_the_next_try_has_a_good_copy(
    backend: RocksDbBackend, place: StateLocation, read: Callable[[Any], object]
) -> None:
    wanted = many(b"1")
    ref = publish(backend, place, StateRef(0), wanted)
    contents(backend, place, ref)
    damage_flip(local_tables(place)[-1])
    with pytest.raises(OSError, match="copy of the state"), backend.open(place, ref) as store:
        read(store)
    assert contents(backend, place, ref) == wanted


def test_a_store_of_an_earlier_boot_is_not_used(
    backend: RocksDbBackend, place: StateLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = publish(backend, place, StateRef(0), many(b"1"))
    wanted = contents(backend, place, ref)
    damage_flip(local_tables(place)[-1])
    (tmp_path / "boot_id").write_text("another-boot")
    monkeypatch.setattr(local_stores, "_BOOT_ID", tmp_path / "boot_id")
    assert contents(backend, place, ref) == wanted


def test_a_closed_store_says_so_and_lets_go(backend: RocksDbBackend, place: StateLocation) -> None:
    ref = publish(backend, place, StateRef(0), {ONE + b"a": b"1", ONE + b"b": b"2"})
    store = backend.open(place, ref)
    unfinished = store.scan(ONE)
    next(unfinished)
    store.close()
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.get(ONE + b"a")
    with pytest.raises(ValueError, match="closed"):
        store.get_many([ONE + b"a"])
    with pytest.raises(ValueError, match="closed"):
        list(store.scan(ONE))
    with pytest.raises(ValueError, match="closed"):
        store.snapshot(staged(1))
    local(backend.files(place, ref)[0]).unlink()
    assert len(contents(backend, place, ref)) == 2, "it was rebuilt, so it was still open"
    assert list(unfinished) == []


def test_a_private_copy_is_removed_when_it_is_closed(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    old = publish(backend, place, StateRef(0), {ONE: b"1"})
    contents(backend, place, publish(backend, place, old, {ONE: b"2"}))
    with backend.open(place, old) as store:
        assert store.get(ONE) == b"1"
        assert list(place.local_dir.glob("private-*"))
    assert not list(place.local_dir.glob("private-*"))


def test_entries_that_are_not_read_to_the_end_leave_nothing(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = publish(backend, place, StateRef(0), {ONE: b"1", TWO: b"2"})
    entries = backend.entries(place, ref)
    assert next(entries) == (ONE, b"1")
    del entries
    assert not list(place.local_dir.glob("private-*"))


def test_a_large_state_is_split_into_sst_files(
    backend: RocksDbBackend, place: StateLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_tree, "_TABLE_BYTES", 20_000)
    wanted = many(b"1")
    ref = backend.load(iter(sorted(wanted.items())), place, staged(1))
    assert ref.version == 0
    assert len(tables_of(ref)) > 3
    assert contents(backend, place, ref) == wanted


def test_sst_files_do_not_accumulate_with_short_tasks(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = StateRef(0)
    for version in range(30):
        ref = publish(backend, place, ref, many(b"%d" % version, 200))
        backend.open(place, ref).close()
    assert len(local_tables(place)) < 25


def test_a_ref_of_another_backend_is_rejected(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    base = StateRef(1, FileRef("x.base", 1, 0, 0))
    for read in (backend.open, lambda *given: list(backend.entries(*given))):
        with pytest.raises(ValueError, match="another backend"):
            read(place, base)
    tables = backend.load(iter([(ONE, b"1")]), place, staged(0))
    with pytest.raises(ValueError, match="another backend"):
        HashMapBackend().open(place, tables)


def test_tables_that_hold_another_version_are_rejected(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = backend.load(iter([(ONE, b"1")]), place, staged(0))
    assert ref.tables is not None
    lying = StateRef(7, tables=type(ref.tables)(7, ref.tables.files))
    with pytest.raises(CorruptStateError, match="not version 7"):
        backend.open(place, lying)


def test_leftovers_go_and_what_is_in_use_stays(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = publish(backend, place, StateRef(0), {ONE: b"1"})
    newer = publish(backend, place, ref, {ONE: b"2"})
    with backend.open(place, ref) as store:
        old = store.snapshot(staged(1))
    with backend.open(place, newer) as store:
        new = store.snapshot(staged(2))
        with backend.open(place, ref) as private:
            dead = place.local_dir / "private-999999999-0"
            gone = place.local_dir / "rocksdb-0-0.gone-999999999-3"
            dead.mkdir()
            gone.mkdir()
            backend.clean_up_local(place, 2)
            assert private.get(ONE) == b"1"
    assert old is not None
    assert new is not None
    left = [Path(old.path).exists(), Path(new.path).exists(), dead.exists(), gone.exists()]
    assert left == [False, True, False, False]
    assert contents(backend, place, newer) == {ONE: b"2"}
    backend.clean_up_local(elsewhere(place, "never used"), 2)


def test_a_version_marker_tells_which_refs_it_reaches() -> None:
    deltas = tuple(FileRef(f"d{version}", version, 0, 0) for version in (1, 2, 3))
    ref = StateRef(3, deltas=deltas)
    assert VersionMarker(3, "d3").is_at(ref)
    assert not VersionMarker(3, "other").is_at(ref)
    assert not VersionMarker(3, "d3", (4, "d4")).is_at(ref)
    assert VersionMarker(3, "d3", (4, "d4")).is_ahead_of(ref)
    assert VersionMarker(1, "d1").reaches(ref)
    assert VersionMarker(1, "d1", (2, "d2")).reaches(ref)
    assert not VersionMarker(1, "d1", (2, "other")).reaches(ref)
    assert not VersionMarker(1, "other").reaches(ref)
    assert not VersionMarker(1, "d1").reaches(StateRef(3, FileRef("b", 2, 0, 0), deltas[2:]))


def processes() -> Any:
    """Processes that no database was ever open in: its threads do not survive a fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def catch_up_and_die(place: StateLocation, ref: StateRef, at: int) -> None:
    """Open a version, but be killed at one of the moments the disk changes."""
    seen = 0

    def moment() -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    write_version_marker, tables = RocksDbDatabase.write_version_marker, RocksDbDatabase._tables

    def watched_marker(self: RocksDbDatabase, marker: VersionMarker) -> None:
        moment()
        write_version_marker(self, marker)
        moment()

    def watched_tables(self: RocksDbDatabase, entries: Any) -> Iterator[str]:
        for table in tables(self, entries):
            moment()
            yield table
            moment()

    RocksDbDatabase.write_version_marker = watched_marker  # type: ignore[method-assign]
    RocksDbDatabase._tables = watched_tables  # type: ignore[method-assign]
    RocksDbBackend().open(place, ref)


@pytest.mark.crash
def test_a_store_survives_being_killed_while_it_catches_up(
    backend: RocksDbBackend, place: StateLocation, tmp_path: Path
) -> None:
    early = publish(backend, place, StateRef(0), {ONE + b"a": b"1", TWO + b"a": b"1"})
    middle = publish(backend, place, early, {ONE + b"a": b"2", TWO + b"a": b"2"})
    late = publish(backend, place, middle, {ONE + b"a": b"3", TWO + b"b": b"3"})
    context = processes()
    for at in range(1, 17):
        here = elsewhere(place, f"host{at}")
        contents(backend, here, early)
        task = context.Process(target=catch_up_and_die, args=(here, late, at))
        task.start()
        task.join()
        assert task.exitcode == -signal.SIGKILL
        # A zombie that asks for the version in between must not see half of the next one.
        if at % 2:
            between = contents(backend, here, middle)
            assert between == {ONE + b"a": b"2", TWO + b"a": b"2"}
        found = contents(backend, here, late)
        assert found == {ONE + b"a": b"3", TWO + b"a": b"2", TWO + b"b": b"3"}


def hold(place: StateLocation, ref: StateRef, ready: Any, done: Any) -> None:
    with RocksDbBackend().open(place, ref) as store:
        before = dict(store.scan(b""))
        ready.set()
        done.wait(60)
        assert dict(store.scan(b"")) == before


def test_a_zombie_in_another_process_blocks_no_task(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = publish(backend, place, StateRef(0), {ONE: b"1"})
    contents(backend, place, ref)
    context = processes()
    ready, done = context.Event(), context.Event()
    zombie = context.Process(target=hold, args=(place, ref, ready, done))
    zombie.start()
    assert ready.wait(60)
    for value in (b"2", b"3"):
        ref = publish(backend, place, ref, {ONE: value})
        assert contents(backend, place, ref) == {ONE: value}
        # The second time, what the first left is gone on with.
        for path in backend.files(place, ref):
            local(path).unlink(missing_ok=True)
    done.set()
    zombie.join()
    assert zombie.exitcode == 0


def test_only_the_last_of_many_zombies_costs_a_private_copy(
    backend: RocksDbBackend, place: StateLocation
) -> None:
    ref = publish(backend, place, StateRef(0), {ONE: b"1"})
    stores = [backend.open(place, ref) for _ in range(4)]
    assert len(list(place.local_dir.glob("private-*"))) == 1
    assert [store.get(ONE) for store in stores] == [b"1"] * 4
    for store in stores:
        store.close()
