"""What only the LMDB backend can get wrong."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import CorruptStateError
from penstock.state.backends import local_stores
from penstock.state.backends.lmdb.backend import HashMapBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.delta import Delta
from tests.local_paths import local


@pytest.fixture
def place(tmp_path: Path) -> StateLocation:
    return StateLocation(tmp_path / "shared", tmp_path / "local")


def publish(
    backend: HashMapBackend, place: StateLocation, ref: StateRef, puts: dict[bytes, bytes]
) -> StateRef:
    version = ref.version + 1
    keys = sorted(puts)
    delta = Delta(keys, [puts[key] for key in keys])
    staged = backend.stage(place, delta, StagedName("a", version, 0, 0, version), version)
    return backend.publish(ref, version, staged)


def contents(backend: HashMapBackend, place: StateLocation, ref: StateRef) -> dict[bytes, bytes]:
    with backend.open(place, ref) as store:
        return dict(store.scan(b""))


def three_versions(backend: HashMapBackend, place: StateLocation) -> StateRef:
    ref = StateRef(0)
    for number in range(3):
        ref = publish(backend, place, ref, {b"k%d" % number: b"v" * 100})
    return ref


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def damage_swap(path: Path) -> None:
    other = HashMapBackend()
    place = StateLocation(path.parent / "other", path.parent / "other-local")
    ref = publish(other, place, StateRef(1), {b"other": b"file"})
    path.write_bytes((place.shared_dir / ref.deltas[0].name).read_bytes())


@pytest.mark.parametrize("damage", [damage_truncate, damage_flip, damage_swap])
def test_a_damaged_file_is_rejected_and_kept(
    place: StateLocation, damage: Callable[[Path], None]
) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    path = backend.files(place, ref)[1]
    damage(local(path))
    found = local(path).read_bytes()
    with pytest.raises(CorruptStateError, match=path.name):
        backend.open(place, ref)
    with pytest.raises(CorruptStateError, match=path.name):
        backend.compact(place, ref, StagedName("a", 9, 0, 0, 9))
    assert local(path).read_bytes() == found


def test_a_damaged_file_leaves_the_local_store_where_it_was(place: StateLocation) -> None:
    backend = HashMapBackend()
    first = publish(backend, place, StateRef(0), {b"a": b"1"})
    second = publish(backend, place, first, {b"a": b"2", b"b": b"2"})
    contents(backend, place, first)
    damage_truncate(local(backend.files(place, second)[1]))
    with pytest.raises(CorruptStateError):
        backend.open(place, second)
    assert contents(backend, place, first) == {b"a": b"1"}


def test_a_missing_file_is_rejected(place: StateLocation) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    local(backend.files(place, ref)[0]).unlink()
    with pytest.raises(CorruptStateError, match="missing"):
        backend.open(place, ref)


def test_catching_up_reads_only_what_is_missing(place: StateLocation) -> None:
    backend = HashMapBackend()
    first = publish(backend, place, StateRef(0), {b"a": b"1"})
    contents(backend, place, first)
    local(backend.files(place, first)[0]).unlink()
    second = publish(backend, place, first, {b"b": b"2"})
    assert contents(backend, place, second) == {b"a": b"1", b"b": b"2"}


def test_a_local_store_of_another_history_is_rebuilt(place: StateLocation) -> None:
    backend = HashMapBackend()
    contents(backend, place, publish(backend, place, StateRef(0), {b"wrong": b"1"}))
    delta = Delta([b"right"], [b"1"])
    staged = backend.stage(place, delta, StagedName("a", 1, 1, 0, 77), 1)
    ref = backend.publish(StateRef(0), 1, staged)
    assert contents(backend, place, ref) == {b"right": b"1"}


def test_a_torn_local_store_is_rebuilt(place: StateLocation) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    contents(backend, place, ref)
    [data] = place.local_dir.glob("*/data.mdb")
    data.write_bytes(b"rubbish" * 2000)
    assert len(contents(backend, place, ref)) == 3


def test_a_store_of_an_earlier_boot_is_not_used(
    place: StateLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    contents(backend, place, ref)
    [data] = place.local_dir.glob("*/data.mdb")
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("another-boot")
    monkeypatch.setattr(local_stores, "_BOOT_ID", boot_id)
    data.write_bytes(b"rubbish" * 2000)
    assert len(contents(backend, place, ref)) == 3


def test_the_map_grows_by_itself(place: StateLocation) -> None:
    backend = HashMapBackend(map_size=1 << 16)
    ref = publish(backend, place, StateRef(0), {b"%05d" % n: b"x" * 100 for n in range(5000)})
    assert len(contents(backend, place, ref)) == 5000


def test_a_map_grown_by_another_process_is_adopted(place: StateLocation) -> None:
    small = HashMapBackend(map_size=1 << 16)
    first = publish(small, place, StateRef(0), {b"a": b"1"})
    with small.open(place, first):
        ref = publish(small, place, first, {b"%05d" % n: b"x" * 100 for n in range(5000)})
        child = multiprocessing.get_context("spawn").Process(
            target=contents, args=(small, place, ref)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
    assert len(contents(small, place, ref)) == 5001


def test_a_private_copy_is_removed_when_it_is_closed(place: StateLocation) -> None:
    backend = HashMapBackend()
    old = publish(backend, place, StateRef(0), {b"a": b"1"})
    contents(backend, place, publish(backend, place, old, {b"a": b"2"}))
    with backend.open(place, old) as store:
        assert store.get(b"a") == b"1"
        assert list(place.local_dir.glob("private-*"))
    assert not list(place.local_dir.glob("private-*"))


def test_a_closed_store_says_so(place: StateLocation) -> None:
    store = HashMapBackend().open(place, StateRef(0))
    store.close()
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.get(b"a")


def test_compaction_keeps_later_deltas(place: StateLocation) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    compacted = backend.compact(place, ref, StagedName("a", 3, 0, 0, 50))
    assert compacted is not None
    later = publish(backend, place, ref, {b"later": b"1"})
    rebased = backend.rebase(later, compacted)
    assert (rebased.base, len(rebased.deltas)) == (compacted.base, 1)
    assert backend.rebase(rebased, compacted) == rebased
    assert backend.rebase(StateRef(1), compacted) == StateRef(1)
    assert len(contents(backend, place, rebased)) == 4


def test_a_base_with_many_long_keys_is_loaded_whole(place: StateLocation) -> None:
    backend = HashMapBackend()
    puts = {b"k" * 600 + b"%d" % number: b"v" for number in range(50)} | {b"short": b"v"}
    ref = publish(backend, place, StateRef(0), puts)
    ref = backend.rebase(ref, backend.compact(place, ref, StagedName("a", 1, 0, 0, 50)))
    assert not ref.deltas
    assert contents(backend, place, ref) == puts


def test_a_full_compaction_shares_no_file_with_the_previous_base(place: StateLocation) -> None:
    full = HashMapBackend(incremental=False)
    ref = three_versions(full, place)
    assert full.compact(place, StateRef(0), StagedName("a", 0, 0, 0, 49)) is None
    ref = full.rebase(ref, full.compact(place, ref, StagedName("a", 3, 0, 0, 50)))
    assert HashMapBackend().compact(place, ref, StagedName("a", 3, 0, 0, 51)) is None
    again = full.rebase(ref, full.compact(place, ref, StagedName("a", 3, 0, 0, 52)))
    assert again.base is not None
    assert again.base != ref.base
    assert contents(full, place, again) == contents(full, place, ref)


def test_nothing_staged_is_ever_overwritten(place: StateLocation) -> None:
    backend = HashMapBackend(durable=True)
    name = StagedName("a", 1, 0, 0, 0)
    backend.stage(place, Delta([b"x"], [b"y"]), name, 1)
    with pytest.raises(FileExistsError):
        backend.stage(place, Delta([b"x"], [b"z"]), name, 1)


def test_only_a_staged_file_of_that_version_can_be_published(place: StateLocation) -> None:
    backend = HashMapBackend()
    staged = backend.stage(place, Delta([b"x"], [b"y"]), StagedName("a", 1, 0, 0, 0), 1)
    with pytest.raises(ValueError, match="version 2"):
        backend.publish(StateRef(0), 2, staged)


CATCH_UP = """
import pickle, sys
from pathlib import Path
from penstock.state.backends.refs import StateLocation
from penstock.state.backends.lmdb.backend import HashMapBackend
from tests.local_paths import local
place, ref = pickle.loads(Path(sys.argv[1]).read_bytes())
print("ready", flush=True)
HashMapBackend().open(place, ref)
print("done", flush=True)
"""


@pytest.mark.crash
def test_a_store_survives_being_killed_while_it_catches_up(
    place: StateLocation, tmp_path: Path
) -> None:
    backend = HashMapBackend()
    ref = StateRef(0)
    for version in range(4):
        ref = publish(backend, place, ref, {b"%06d" % n: b"%d" % version for n in range(100_000)})
    early = StateRef(1, None, ref.deltas[:1])
    wanted = {b"%06d" % n: b"3" for n in range(100_000)}
    (tmp_path / "task").write_bytes(pickle.dumps((place, ref)))
    cut_off = 0
    for attempt in range(6):
        contents(backend, place, early)
        command = [sys.executable, "-c", CATCH_UP, str(tmp_path / "task")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as task:
            assert task.stdout is not None
            task.stdout.readline()
            time.sleep(0.02 * (attempt + 1))
            task.kill()
            cut_off += b"done" not in task.stdout.read()
        assert contents(backend, place, ref) == wanted
        for store in place.local_dir.iterdir():
            store.rename(tmp_path / f"old-{attempt}")
    assert cut_off, "every task was done before it was killed: kill earlier"


def test_two_processes_catch_up_at_once(place: StateLocation) -> None:
    backend = HashMapBackend()
    ref = StateRef(0)
    for version in range(3):
        ref = publish(backend, place, ref, {b"%05d" % n: b"%d" % version for n in range(5000)})
    context = multiprocessing.get_context("fork")
    tasks = [context.Process(target=contents, args=(backend, place, ref)) for _ in range(2)]
    for task in tasks:
        task.start()
    mine = contents(backend, place, ref)
    for task in tasks:
        task.join()
    assert [task.exitcode for task in tasks] == [0, 0]
    assert mine == {b"%05d" % n: b"2" for n in range(5000)}


def test_a_worker_forked_after_the_store_was_used_opens_it_again(place: StateLocation) -> None:
    backend = HashMapBackend()
    ref = three_versions(backend, place)
    contents(backend, place, ref)
    child = multiprocessing.get_context("fork").Process(target=contents, args=(backend, place, ref))
    child.start()
    child.join()
    assert child.exitcode == 0
