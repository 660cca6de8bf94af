"""What every state backend guarantees: one suite for all of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import CorruptStateError
from penstock.state.backends.base import StateBackend
from penstock.state.backends.host_files import HostFiles
from penstock.state.backends.lmdb.backend import HashMapBackend
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.backends.rocksdb.backend import RocksDbBackend
from penstock.state.delta import Delta
from penstock.state.key_groups import KeyGroupRange, routed_key
from penstock.state.local_dir import choose_local_dir
from penstock.state.registry.meta_info import StateMetaInfo, registry_key, table_prefix
from tests.local_paths import local

State = dict[bytes, bytes]

BACKENDS: dict[str, Callable[[], StateBackend]] = {
    "hashmap": HashMapBackend,
    "memory": MemoryBackend,
    "rocksdb": RocksDbBackend,
}
KEY_GROUPS = 8
REGISTRY = {
    registry_key("one"): StateMetaInfo(1, "value state", "Long").encode(),
    registry_key("two"): StateMetaInfo(2, "map state", "String").encode(),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> StateBackend:
    return BACKENDS[request.param]()


@pytest.fixture
def root() -> Iterator[Path]:
    # RocksDB flushes every file to disk: in shared memory that takes no time.
    with tempfile.TemporaryDirectory(dir=choose_local_dir()) as path:
        yield Path(path)


@pytest.fixture
def place(root: Path) -> StateLocation:
    return StateLocation(root / "shared", root / "local")


def delta_of(puts: State, deletes: set[bytes] = frozenset()) -> Delta:  # type: ignore[assignment]
    keys = sorted(puts)
    return Delta(keys, [puts[key] for key in keys], sorted(deletes))


def name(batch: int, task_attempt: int = 0) -> StagedName:
    return StagedName("attempt-1", batch, 0, 0, task_attempt)


def commit(
    backend: StateBackend, place: StateLocation, ref: StateRef, delta: Delta, version: int
) -> StateRef:
    return backend.publish(ref, version, backend.stage(place, delta, name(version), version))


def contents(backend: StateBackend, place: StateLocation, ref: StateRef) -> State:
    with backend.open(place, ref) as store:
        assert store.version == ref.version
        return dict(store.scan(b""))


def key(table: int, group: int, text: str) -> bytes:
    return table_prefix(table) + routed_key(text.encode(), group)


def test_a_new_state_is_empty(backend: StateBackend, place: StateLocation) -> None:
    with backend.open(place, StateRef(0)) as store:
        assert store.version == 0
        assert store.get(b"k") is None
        assert store.get_many([b"a", b"b"]) == [None, None]
        assert list(store.scan(b"")) == []


def test_a_published_delta_is_read_back(backend: StateBackend, place: StateLocation) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"a": b"1", b"b": b""}), 1)
    ref = commit(backend, place, ref, delta_of({b"c": b"3"}, {b"a"}), 2)
    with backend.open(place, ref) as store:
        assert store.get_many([b"a", b"b", b"c"]) == [None, b"", b"3"]


def test_a_staged_delta_is_invisible_until_it_is_published(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"a": b"1"}), 1)
    backend.stage(place, delta_of({b"a": b"lost"}), name(2, task_attempt=1), 2)
    assert contents(backend, place, ref) == {b"a": b"1"}
    ref = commit(backend, place, ref, delta_of({b"b": b"2"}), 2)
    assert contents(backend, place, ref) == {b"a": b"1", b"b": b"2"}


def test_a_micro_batch_without_changes_moves_the_version_on(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"a": b"1"}), 1)
    assert backend.stage(place, Delta(), name(2), 2) is None
    ref = backend.publish(ref, 2, None)
    assert ref.version == 2
    assert contents(backend, place, ref) == {b"a": b"1"}


def test_versions_only_grow(backend: StateBackend) -> None:
    with pytest.raises(ValueError, match="does not come after"):
        backend.publish(StateRef(3), 3, None)


def test_an_open_store_keeps_its_version_while_others_go_on(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"a": b"1"}), 1)
    with backend.open(place, ref) as store:
        newer = commit(backend, place, ref, delta_of({b"a": b"2"}), 2)
        with backend.open(place, newer) as other:
            assert (store.get(b"a"), other.get(b"a")) == (b"1", b"2")


def test_an_older_version_can_be_opened_after_a_newer_one(
    backend: StateBackend, place: StateLocation
) -> None:
    old = commit(backend, place, StateRef(0), delta_of({b"a": b"1"}), 1)
    new = commit(backend, place, old, delta_of({b"a": b"2"}), 2)
    assert contents(backend, place, new) == {b"a": b"2"}
    assert contents(backend, place, old) == {b"a": b"1"}
    assert contents(backend, place, new) == {b"a": b"2"}


def test_another_host_rebuilds_what_it_lacks(backend: StateBackend, place: StateLocation) -> None:
    ref = StateRef(0)
    for version in range(1, 4):
        ref = commit(backend, place, ref, delta_of({b"k%d" % version: b"v"}), version)
    elsewhere = replace(place, local_dir=place.local_dir / "elsewhere")
    assert set(contents(backend, elsewhere, ref)) == {b"k1", b"k2", b"k3"}


def test_scans_are_ordered_and_bounded(backend: StateBackend, place: StateLocation) -> None:
    puts = {bytes([a, b]): b"v" for a in (1, 2, 255) for b in (0, 7, 255)}
    ref = commit(backend, place, StateRef(0), delta_of(puts), 1)
    with backend.open(place, ref) as store:
        assert [k for k, _ in store.scan(b"")] == sorted(puts)
        assert [k for k, _ in store.scan(b"\x02")] == [b"\x02\0", b"\x02\x07", b"\x02\xff"]
        assert [k for k, _ in store.scan(b"\xff")] == [b"\xff\0", b"\xff\x07", b"\xff\xff"]
        assert [k for k, _ in store.scan_between(b"\x01\x07", b"\x02\x07")] == [
            b"\x01\x07",
            b"\x01\xff",
            b"\x02\0",
        ]


def test_a_table_is_scanned_by_key_groups(backend: StateBackend, place: StateLocation) -> None:
    puts = {key(table, group, "k"): b"v" for table in (1, 2) for group in range(4)}
    ref = commit(backend, place, StateRef(0), delta_of(puts), 1)
    with backend.open(place, ref) as store:
        found = [k for k, _ in store.scan_key_groups(1, KeyGroupRange(1, 3))]
    assert found == [key(1, 1, "k"), key(1, 2, "k")]


@pytest.mark.parametrize("length", [479, 480, 510, 511, 512, 5000])
def test_long_keys_are_keys_like_any_other(
    backend: StateBackend, place: StateLocation, length: int
) -> None:
    puts = {b"k" * length + end: b"v" + end for end in (b"", b"a", b"b", b"zz")}
    puts[b"k" * 400] = b"short"
    ref = commit(backend, place, StateRef(0), delta_of(puts), 1)
    with backend.open(place, ref) as store:
        assert {k: store.get(k) for k in puts} == puts
        assert [k for k, _ in store.scan(b"k")] == sorted(puts)
        assert [k for k, _ in store.scan(b"k" * length + b"z")] == [b"k" * length + b"zz"]
    ref = commit(backend, place, ref, delta_of({}, set(puts)), 2)
    assert contents(backend, place, ref) == {}


def test_a_ref_travels_as_bytes(backend: StateBackend, place: StateLocation) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"a": b"1"}), 1)
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(ref), type=StateRef)
    assert travelled == ref
    assert contents(backend, place, travelled) == {b"a": b"1"}


def three_versions(backend: StateBackend, place: StateLocation) -> tuple[StateRef, State]:
    """A base, where the backend has one, and deltas on top, with a delete among them."""
    ref = commit(backend, place, StateRef(0), delta_of({**REGISTRY, key(1, 0, "a"): b"1"}), 1)
    ref = backend.rebase(ref, backend.compact(place, ref, name(1, task_attempt=50)))
    ref = commit(backend, place, ref, delta_of({key(2, 5, "b"): b""}, {key(1, 0, "a")}), 2)
    ref = commit(backend, place, ref, delta_of({key(1, 3, "c"): b"3"}), 3)
    return ref, {**REGISTRY, key(2, 5, "b"): b"", key(1, 3, "c"): b"3"}


def test_entries_are_sorted_and_only_read(backend: StateBackend, place: StateLocation) -> None:
    ref, model = three_versions(backend, place)
    before = sorted(path.name for path in place.shared_dir.glob("*"))
    assert list(backend.entries(place, ref)) == sorted(model.items())
    assert sorted(path.name for path in place.shared_dir.glob("*")) == before
    assert list(backend.entries(place, StateRef(0))) == []


def test_what_is_loaded_is_a_state_at_version_0(
    backend: StateBackend, place: StateLocation
) -> None:
    ref, model = three_versions(backend, place)
    ref = backend.load(iter(sorted(model.items())), place, name(9))
    assert ref.version == 0
    backend.verify(place, ref)
    assert contents(backend, replace(place, local_dir=place.local_dir / "new"), ref) == model
    empty = backend.load(iter(()), place, name(10))
    assert contents(backend, replace(place, local_dir=place.local_dir / "empty"), empty) == {}


def test_a_compacted_base_is_the_same_state_without_deltas(
    backend: StateBackend, place: StateLocation
) -> None:
    ref, model = three_versions(backend, place)
    compacted = backend.compact(place, ref, name(3, task_attempt=51))
    if compacted is not None:
        assert (compacted.version, compacted.deltas) == (ref.version, ())
        assert backend.rebase(ref, compacted) == compacted
        assert (
            contents(backend, replace(place, local_dir=place.local_dir / "new"), compacted) == model
        )
    assert contents(backend, place, backend.rebase(ref, compacted)) == model
    assert backend.rebase(StateRef(1), compacted) == StateRef(1)


def test_an_older_compaction_that_ends_late_changes_nothing(
    backend: StateBackend, place: StateLocation
) -> None:
    ref = commit(backend, place, StateRef(0), delta_of({b"aa": b"1"}), 1)
    late = backend.compact(place, ref, name(1, task_attempt=50))
    ref = commit(backend, place, ref, delta_of({b"bb": b"2"}), 2)
    ref = backend.rebase(ref, backend.compact(place, ref, name(2, task_attempt=51)))
    assert backend.rebase(ref, late) == ref


def test_a_damaged_file_is_named_unless_it_is_known(
    backend: StateBackend, place: StateLocation
) -> None:
    ref, _ = three_versions(backend, place)
    backend.sync(place, ref)
    backend.verify(place, ref)
    for path in backend.files(place, ref):
        good = local(path).read_bytes()
        for bad in (good[:-1], good + b"x", bytes([good[0] ^ 1]) + good[1:], None):
            local(path).unlink() if bad is None else local(path).write_bytes(bad)
            with pytest.raises(CorruptStateError) as caught:
                backend.verify(place, ref)
            assert caught.value.path == str(path)
            backend.verify(place, ref, known={path.name})
        backend.sync(place, ref, known={path.name})
        with pytest.raises(FileNotFoundError):
            backend.sync(place, ref)
        local(path).write_bytes(good)


@pytest.mark.parametrize("writer", BACKENDS)
def test_a_restore_reads_what_another_backend_wrote(
    backend: StateBackend, writer: str, root: Path
) -> None:
    older = BACKENDS[writer]()
    source = StateLocation(root / "old", root / "old-local")
    ref, model = three_versions(older, source)
    place = StateLocation(root / "new", root / "new-local")
    restored = backend.restore([(older, source, ref)], KeyGroupRange(0, 8), place, name(0))
    assert contents(backend, place, restored) == model
    assert contents(older, source, ref) == model


def test_a_new_attempt_continues_from_the_ref_of_the_last_one(
    backend: StateBackend, place: StateLocation
) -> None:
    ref, model = three_versions(backend, place)
    commit(backend, place, ref, delta_of({b"rolled": b"back"}), 4)
    attempt = replace(place, local_dir=place.local_dir / "attempt-2")
    mine = StagedName("attempt-2", 4, 0, 0, 0)
    staged = backend.stage(attempt, delta_of({b"kept": b"4"}), mine, 4)
    ref = backend.publish(ref, 4, staged)
    assert contents(backend, attempt, ref) == {**model, b"kept": b"4"}


def test_a_restore_takes_its_key_groups_out_of_all_sources(
    backend: StateBackend, root: Path
) -> None:
    sources = []
    for subtask in range(2):
        place = StateLocation(root / f"s{subtask}", root / f"l{subtask}")
        groups = range(subtask * 4, subtask * 4 + 4)
        puts = {**REGISTRY, **{key(1, group, "k"): b"%d" % group for group in groups}}
        sources.append((backend, place, commit(backend, place, StateRef(0), delta_of(puts), 1)))
    place = StateLocation(root / "new", root / "new-local")
    ref = backend.restore(sources, KeyGroupRange(3, 6), place, name(0))
    assert ref.version == 0
    kept = {key(1, group, "k"): b"%d" % group for group in (3, 4, 5)}
    assert contents(backend, place, ref) == {**REGISTRY, **kept}


def test_a_restore_matches_tables_by_name_not_by_number(backend: StateBackend, root: Path) -> None:
    numbers = [{"one": 1, "two": 2}, {"two": 1, "three": 2, "one": 3}]
    sources = []
    for subtask, tables in enumerate(numbers):
        place = StateLocation(root / f"s{subtask}", root / f"l{subtask}")
        puts = {
            registry_key(state): StateMetaInfo(table, "value state", "Long").encode()
            for state, table in tables.items()
        }
        puts |= {key(table, subtask, state): b"v" for state, table in tables.items()}
        sources.append((backend, place, commit(backend, place, StateRef(0), delta_of(puts), 1)))
    place = StateLocation(root / "new", root / "new-local")
    ref = backend.restore(sources, KeyGroupRange(0, 8), place, name(0))
    with backend.open(place, ref) as store:
        for state, table in {"one": 1, "two": 2, "three": 3}.items():
            found = [k for k, _ in store.scan(table_prefix(table))]
            owners = [subtask for subtask, tables in enumerate(numbers) if state in tables]
            assert found == [key(table, subtask, state) for subtask in owners]


KEYS = st.builds(
    key,
    st.sampled_from([1, 2]),
    st.integers(0, KEY_GROUPS - 1),
    st.sampled_from(["a", "b", "c", "d", "L" * 506, "L" * 507, "L" * 600 + "x", "L" * 600 + "y"]),
)
PUTS = st.dictionaries(KEYS, st.binary(max_size=3), max_size=6)


class BackendMachine(RuleBasedStateMachine):
    """Drives a backend as jobs do and compares each version with a plain dict."""

    backend_name: str

    def __init__(self) -> None:
        super().__init__()
        self.backend = BACKENDS[self.backend_name]()
        self.root = Path(tempfile.mkdtemp(dir=choose_local_dir()))
        self.hosts = self.attempts = self.tasks = 0
        self.folding: tuple[StateRef | None, int] | None = None
        self.past: tuple[StateRef, State] | None = None
        self.new_attempt(StateRef(0), {})

    def new_attempt(self, ref: StateRef, model: State) -> None:
        self.ref, self.model = ref, model
        self.folding = self.past = None

    def fresh_place(self) -> StateLocation:
        self.attempts += 1
        base = self.root / f"attempt{self.attempts}"
        return StateLocation(base / "shared", base / "local")

    def staged_name(self) -> StagedName:
        self.tasks += 1
        return StagedName(f"attempt{self.attempts}", self.ref.version + 1, 0, 0, self.tasks)

    @initialize()
    def begin(self) -> None:
        self.place = self.fresh_place()
        self.publish(dict(REGISTRY), set())

    def publish(self, puts: State, deletes: set[bytes]) -> None:
        version = self.ref.version + 1
        delta = delta_of(puts, deletes)
        staged = self.backend.stage(self.place, delta, self.staged_name(), version)
        self.ref = self.backend.publish(self.ref, version, staged)
        kept = {k: v for k, v in self.model.items() if k not in deletes}
        self.model = {**kept, **puts}

    @rule(puts=PUTS, deletes=st.sets(KEYS, max_size=4))
    def micro_batch(self, puts: State, deletes: set[bytes]) -> None:
        self.publish(puts, deletes - set(puts))

    @rule(puts=PUTS, deletes=st.sets(KEYS, max_size=4))
    def lost_try(self, puts: State, deletes: set[bytes]) -> None:
        delta = delta_of(puts, deletes - set(puts))
        self.backend.stage(self.place, delta, self.staged_name(), self.ref.version + 1)

    @rule()
    def move_to_another_host(self) -> None:
        self.hosts += 1
        self.place = replace(self.place, local_dir=self.root / f"host{self.hosts}")

    @rule()
    def remember_this_version(self) -> None:
        self.past = (self.ref, dict(self.model))

    @rule()
    def zombie_reads_the_past(self) -> None:
        if self.past is not None:
            ref, model = self.past
            assert contents(self.backend, self.place, ref) == model

    @rule(takes_snapshot=st.booleans(), loses_it=st.booleans())
    def start_folding(self, takes_snapshot: bool, loses_it: bool) -> None:
        name, snapshot = self.staged_name(), None
        if takes_snapshot:
            with self.backend.open(self.place, self.ref) as store:
                snapshot = store.snapshot(name)
        if loses_it and snapshot is not None:
            shutil.rmtree(snapshot.path)
        self.folding = self.backend.compact(self.place, self.ref, name, snapshot), self.ref.version

    @rule()
    def remove_local_garbage(self) -> None:
        self.backend.clean_up_local(self.place, self.ref.version)

    @rule()
    def finish_folding(self) -> None:
        if self.folding is not None:
            self.ref = self.backend.rebase(self.ref, self.folding[0])
            self.folding = None

    @rule()
    def drop_what_is_not_needed(self) -> None:
        keep = [self.ref] if self.past is None else [self.ref, self.past[0]]
        needed = {path for ref in keep for path in self.backend.files(self.place, ref)}
        for path in self.place.shared_dir.glob("*"):
            if path not in needed and self.folding is None:
                path.unlink()

    @rule(start=st.integers(0, KEY_GROUPS), stop=st.integers(0, KEY_GROUPS))
    def restore_a_range(self, start: int, stop: int) -> None:
        groups = KeyGroupRange(min(start, stop), max(start, stop))
        source, frozen = self.place, self.backend.freeze(self.ref)
        self.backend.sync(source, frozen)
        self.backend.verify(source, frozen)
        self.place = self.fresh_place()
        restored = self.backend.restore(
            [(self.backend, source, frozen)], groups, self.place, self.staged_name()
        )
        kept = {
            k: v
            for k, v in self.model.items()
            if k in REGISTRY or int.from_bytes(k[2:4], "big") in groups
        }
        self.new_attempt(restored, kept)

    @invariant()
    def the_newest_version_holds_what_was_published(self) -> None:
        with self.backend.open(self.place, self.ref) as store:
            found = list(store.scan(b""))
            assert found == sorted(self.model.items())
            wanted = [*self.model, b"\0\1no such key"]
            assert store.get_many(wanted) == [*self.model.values(), None]

    @invariant()
    def every_file_it_needs_is_there(self) -> None:
        assert all(local(path).is_file() for path in self.backend.files(self.place, self.ref))

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class HashMapMachine(BackendMachine):
    backend_name = "hashmap"


class MemoryMachine(BackendMachine):
    backend_name = "memory"


class RocksDbMachine(BackendMachine):
    backend_name = "rocksdb"


STEPS = settings(max_examples=15, stateful_step_count=20, deadline=None)
HashMapMachine.TestCase.settings = STEPS
MemoryMachine.TestCase.settings = STEPS
RocksDbMachine.TestCase.settings = settings(STEPS, max_examples=6)
TestHashMap: type = HashMapMachine.TestCase
TestMemory: type = MemoryMachine.TestCase
TestRocksDb: type = RocksDbMachine.TestCase


@pytest.fixture(autouse=True)
def _no_open_environments() -> Iterator[None]:
    yield
    from penstock.state.backends.lmdb import environment as lmdb_env

    assert not lmdb_env._opened


def test_entries_of_a_range_are_those_between(backend: StateBackend, place: StateLocation) -> None:
    state = {key(1, group, f"{n}"): b"%d" % n for group in range(KEY_GROUPS) for n in range(9)}
    ref = backend.load(iter(sorted(state.items())), place, name(0))
    ref = commit(backend, place, ref, delta_of({key(2, 3, "new"): b"x"}, {key(1, 3, "4")}), 1)
    present = {**state, key(2, 3, "new"): b"x"}
    del present[key(1, 3, "4")]
    for start, stop in [
        (key(1, 3, "3"), key(1, 3, "6")),
        (table_prefix(1) + b"\0\3", table_prefix(1) + b"\0\5"),
        (table_prefix(2), None),
        (b"", table_prefix(1)),
        (key(1, 7, "8") + b"\0", table_prefix(2)),
    ]:
        expected = [(k, present[k]) for k in sorted(present) if start <= k < (stop or b"\xff")]
        assert list(backend.entries(place, ref, start, stop)) == expected


@pytest.mark.parametrize("seed", range(8))
def test_files_alone_show_every_version(backend: StateBackend, root: Path, seed: int) -> None:
    random = Random(seed)
    place, files = StateLocation(root / "shared", root / "local"), HostFiles(root / "reader")
    sizes = [0, 1, 15, 200, 255, 256, 300, *([70_000] if seed < 2 else [])]
    texts = [f"{random.random()}"[: random.choice([1, 3, 300])] for _ in range(60)]
    keys = [key(1 + n % 2, n % KEY_GROUPS, text * 20) for n, text in enumerate(texts)]
    state: State = {}
    ref = StateRef(0)
    opened = []
    for version in range(1, 12):
        puts = {k: random.randbytes(random.choice(sizes)) for k in random.sample(keys, 12)}
        deletes = set(random.sample(keys, 5)) - puts.keys()
        ref = commit(backend, place, ref, delta_of(puts, deletes), version)
        state = {k: v for k, v in {**state, **puts}.items() if k not in deletes}
        if random.random() < 0.4:
            ref = backend.rebase(ref, backend.compact(place, ref, name(version)))
        if random.random() < 0.6:
            store = backend.open_files(place, ref, files)
            opened.append((store, state))
            assert store.version == version
    shutil.rmtree(place.shared_dir, ignore_errors=True)  # the job deletes what it does not need
    assert opened
    for store, expected in opened:
        assert store.get_many(keys) == [expected.get(k) for k in keys]
        assert dict(store.scan(b"")) == expected
        low, high = sorted(random.sample(keys, 2))
        found = list(store.scan_between(low, high))
        assert found == [(k, expected[k]) for k in sorted(expected) if low <= k < high]
        store.close()
    files.close()
    assert not (root / "reader").exists()


def test_files_of_a_reader_are_verified(backend: StateBackend, root: Path) -> None:
    place, files = StateLocation(root / "shared", root / "local"), HostFiles(root / "reader")
    ref = commit(backend, place, StateRef(0), delta_of({b"k" * 9: b"v" * 900}), 1)
    ref = backend.rebase(ref, backend.compact(place, ref, name(1)))
    if not ref.files:
        pytest.skip("this backend has no files")
    path = local(backend.files(place, ref)[0])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStateError, match=path.name):
        backend.open_files(place, ref, files)


def test_files_that_no_version_needs_are_removed_from_the_reader(
    backend: StateBackend, root: Path
) -> None:
    place, files = StateLocation(root / "shared", root / "local"), HostFiles(root / "reader")
    ref = commit(backend, place, StateRef(0), delta_of({b"one": b"1"}), 1)
    backend.open_files(place, ref, files).close()
    base = backend.rebase(ref, backend.compact(place, ref, name(1)))
    store = backend.open_files(place, base, files)
    files.keep_only({file.name for file in base.files})
    assert {p.name for p in (root / "reader" / "files").iterdir()} == {f.name for f in base.files}
    assert store.get(b"one") == b"1"
    store.close()
