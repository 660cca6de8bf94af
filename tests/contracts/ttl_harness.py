"""One subtask with state TTL, with any backend and a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.common import Time, Types
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.savepoint.layout import SavedOperator
from penstock.savepoint.read import entries_of
from penstock.savepoint.write import finalize_files, write_subtask
from penstock.state.backends.base import StateBackend
from penstock.state.backends.lmdb.backend import HashMapBackend
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.backends.rocksdb.backend import RocksDbBackend
from penstock.state.key_groups import KeyGroupRange, key_group, routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.state.registry.meta_info import REGISTRY, StateMetaInfo, decode_info, table_prefix
from penstock.types.signature import type_signature

D = TypeVar("D", bound=StateDescriptor)
R = TypeVar("R")

BACKENDS: dict[str, Callable[[], StateBackend]] = {
    "hashmap": HashMapBackend,
    "memory": MemoryBackend,
    "rocksdb": RocksDbBackend,
}
KEY_GROUPS = 8
TTL = 100


class Sum(AggregateFunction[int, int, int]):
    """Adds numbers up."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def ttl(millis: int = TTL) -> StateTtlConfig.Builder:
    return StateTtlConfig.new_builder(Time.milliseconds(millis))


NEVER = ttl().build()
ON_READ = ttl().update_ttl_on_read_and_write().build()
SHOWN = ttl().return_expired_if_not_cleaned_up().disable_cleanup_in_background().build()
SHOWN_ON_READ = (
    ttl()
    .update_ttl_on_read_and_write()
    .return_expired_if_not_cleaned_up()
    .disable_cleanup_in_background()
    .build()
)
CONFIGS = {"never": NEVER, "on-read": ON_READ, "shown": SHOWN, "shown-on-read": SHOWN_ON_READ}


def value(config: StateTtlConfig | None = NEVER) -> ValueStateDescriptor:
    return expiring(ValueStateDescriptor("value", Types.LONG()), config)


def elements(config: StateTtlConfig | None = NEVER) -> ListStateDescriptor:
    return expiring(ListStateDescriptor("list", Types.LONG()), config)


def entries(config: StateTtlConfig | None = NEVER) -> MapStateDescriptor:
    return expiring(MapStateDescriptor("map", Types.STRING(), Types.LONG()), config)


def reduced(config: StateTtlConfig | None = NEVER) -> ReducingStateDescriptor:
    return expiring(ReducingStateDescriptor("reduced", lambda a, b: a + b, Types.LONG()), config)


def summed(config: StateTtlConfig | None = NEVER) -> AggregatingStateDescriptor:
    return expiring(AggregatingStateDescriptor("summed", Sum(), Types.LONG()), config)


def expiring(descriptor: D, config: StateTtlConfig | None) -> D:
    if config is not None:
        descriptor.enable_time_to_live(config)
    return descriptor


class World:
    """One subtask with a backend and a manual clock."""

    def __init__(self, backend: str, root: Path) -> None:
        self.backend = BACKENDS[backend]()
        self.root = root
        self.now = 1_000_000
        self._moves = 0
        self._place()
        self.ref = StateRef(0)
        self.new_function()

    def new_function(self) -> KeyedStates:
        self.states = KeyedStates("step", KeyCodec(step="step"))
        return self.states

    def batch(self, keys: list[str], work: Callable[[], R], publish: bool = True) -> list[R]:
        """Run the function under each key; return its results."""
        with self.backend.open(self.place, self.ref) as store:
            self.states.bind(store, [routed(self.states, key) for key in keys], now=self.now)
            results = []
            for self.states.current in range(len(keys)):
                results.append(work())
            delta = self.states.take_delta()
            assert list(delta.keys) == sorted(delta.keys)
            assert not set(delta.keys) & set(delta.deletes)
            assert not len(self.states.take_delta())
            self.states.release()
        version = self.ref.version + 1
        name = StagedName("a", version, 0, 0, self._moves)
        self._moves += 1
        staged = self.backend.stage(self.place, delta, name, version)
        if publish:
            self.ref = self.backend.publish(self.ref, version, staged)
        return results

    def idle(self, batches: int = 1) -> None:
        """Let micro-batches pass that use no state."""
        for _ in range(batches):
            self.batch(["another key"], lambda: None)

    def stored(self) -> dict[str, int]:
        """Return how many entries each state has in the store."""
        found: dict[int, int] = {}
        names: dict[int, str] = {}
        for key, data in self.backend.entries(self.place, self.ref):
            table = int.from_bytes(key[:2], "big")
            if table == REGISTRY:
                names[decode_info(data).table] = key[2:].decode()
            else:
                found[table] = found.get(table, 0) + 1
        return {name: found.get(table, 0) for table, name in names.items()}

    def info(self, name: str) -> StateMetaInfo:
        key = table_prefix(REGISTRY) + name.encode()
        return decode_info(dict(self.backend.entries(self.place, self.ref))[key])

    def rescale(self) -> None:
        """Rescale the state to two subtasks and back, in another directory."""
        halves = []
        old, old_place = self.ref, self.place
        for groups in (KeyGroupRange(0, 3), KeyGroupRange(3, KEY_GROUPS)):
            self._place()
            source = [(self.backend, old_place, old)]
            ref = self.backend.restore(source, groups, self.place, self._name())
            halves.append((self.backend, self.place, ref))
        self._place()
        self.ref = self.backend.restore(
            halves, KeyGroupRange(0, KEY_GROUPS), self.place, self._name()
        )
        self.new_function()

    def save(self) -> Path:
        """Write a savepoint and restore it in another directory."""
        self._moves += 1
        savepoint = self.root / f"savepoint-{self._moves}"
        operator = SavedOperator("step", type_signature(Types.PICKLED_BYTE_ARRAY()), KEY_GROUPS)
        found = self.backend.entries(self.place, self.ref)
        files = write_subtask(found, operator, savepoint, 0, "a", self.now)
        kept = finalize_files(savepoint, files)
        self._place()
        read = entries_of(savepoint, kept, KeyGroupRange(0, KEY_GROUPS))
        self.ref = self.backend.load(read, self.place, self._name())
        self.new_function()
        return savepoint

    def compact(self) -> None:
        """Compact deltas into a base."""
        compacted = self.backend.compact(self.place, self.ref, self._name())
        self.ref = self.backend.rebase(self.ref, compacted)

    def _place(self) -> None:
        self._moves += 1
        self.place = StateLocation(
            self.root / f"shared-{self._moves}", self.root / f"local-{self._moves}"
        )

    def _name(self) -> StagedName:
        self._moves += 1
        return StagedName("a", self.ref.version if hasattr(self, "ref") else 0, 0, 0, self._moves)


def routed(states: KeyedStates, key: str) -> bytes:
    encoded = states.codec.encode(key)
    return routed_key(encoded, key_group(encoded, KEY_GROUPS))
