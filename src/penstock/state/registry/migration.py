"""Migrates stored values from an older type of their state to the declared one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter

import msgspec

from penstock.common.typeinfo import MapTypeInfo, TypeInformation
from penstock.errors import StateDeclaredTwiceError
from penstock.state.backends.store import StateStore
from penstock.state.delta import Delta
from penstock.state.registry.meta_info import MAP_STATE, NO_VALUE, StateMetaInfo, table_prefix
from penstock.state.ttl.timestamps import add_timestamps, split_timestamps, with_timestamps
from penstock.types.compatibility import Incompatible, Migration, compatibility
from penstock.types.serializers import serializer_for
from penstock.types.signature import parse_signature

Rewrite = Callable[[bytes], bytes]


def rewriter(old: StateMetaInfo, new: StateMetaInfo) -> Rewrite | Incompatible | None:
    """Return the conversion of stored values to another type; None if they stay as they are.

    Only the type of a state and its time-to-live can change, never its kind.
    """
    rewrite = _of_type(old, new)
    if isinstance(rewrite, Incompatible) or (old.ttl is None and new.ttl is None):
        return rewrite
    if old.ttl is not None and new.ttl is not None and rewrite is None:
        return None
    kind, body = new.kind, rewrite or _same
    if old.ttl is None:
        assert new.ttl is not None
        since = new.ttl.since
        return lambda data: add_timestamps(body(data), kind, since)
    if new.ttl is None:
        return lambda data: body(split_timestamps(data, kind)[1])

    def under_timestamps(data: bytes) -> bytes:
        timestamps, inner = split_timestamps(data, kind)
        return with_timestamps(timestamps, body(inner), kind)

    return under_timestamps


def _of_type(old: StateMetaInfo, new: StateMetaInfo) -> Rewrite | Incompatible | None:
    if old.kind != new.kind:
        return Incompatible(f"a {old.kind} cannot become a {new.kind}")
    if old.windows != new.windows:
        return Incompatible(f"state per {_scope_of(old)} cannot become state per {_scope_of(new)}")
    if old.type == new.type:
        return None
    try:
        before, now = parse_signature(old.type), parse_signature(new.type)
    except ValueError as error:
        return Incompatible(str(error))
    found = compatibility(before, now)
    if isinstance(found, Incompatible):
        return found
    if not isinstance(found, Migration) or found.same_bytes:
        return None
    if old.kind == MAP_STATE:
        return _of_map_entries(before, now)
    return _of_values(before, now, found)


def _scope_of(info: StateMetaInfo) -> str:
    return f"{info.windows} window" if info.windows else "key"


def later_of(first: StateMetaInfo, second: StateMetaInfo) -> StateMetaInfo | None:
    """Return the newer of two registry entries of one state; None if they are incompatible.

    Each subtask migrates on its own, so a snapshot may contain some before and some after it.
    """
    older, newer = sorted((first, second), key=lambda info: info.generation)
    if not isinstance(rewriter(older, newer), Incompatible):
        return newer
    if older.generation == newer.generation and not isinstance(
        rewriter(newer, older), Incompatible
    ):
        return older
    return None


def merged_registry(
    registries: Iterable[Mapping[str, StateMetaInfo]], step: str
) -> dict[str, StateMetaInfo]:
    """Merge the registries of a step's subtasks, which number and migrate tables on their own.

    Raises:
        StateDeclaredTwiceError: if they disagree on what a state is.
    """
    merged: dict[str, StateMetaInfo] = {}
    for known in registries:
        for name, info in sorted(known.items(), key=lambda item: item[1].table):
            other = merged.get(name)
            if other is None:
                taken = {other.table for other in merged.values()}
                table = info.table if info.table not in taken else max(taken) + 1
                merged[name] = msgspec.structs.replace(info, table=table)
                continue
            later = later_of(other, info)
            if later is None:
                raise StateDeclaredTwiceError(step, name, str(other), str(info))
            merged[name] = msgspec.structs.replace(later, table=other.table)
    return merged


def rewriters(
    known: Mapping[str, StateMetaInfo], merged: Mapping[str, StateMetaInfo]
) -> dict[bytes, Rewrite]:
    """Return the conversions of a subtask's tables to a merged registry, by table prefix."""
    found = {}
    for name, info in known.items():
        rewrite = rewriter(info, merged[name])
        assert not isinstance(rewrite, Incompatible)
        if rewrite is not None:
            found[table_prefix(info.table)] = rewrite
    return found


def _of_values(before: TypeInformation, now: TypeInformation, found: Migration) -> Rewrite:
    read, convert, write = serializer_for(before).decode, found.convert, serializer_for(now).write
    return lambda data: write(convert(read(data)))


def _of_map_entries(before: TypeInformation, now: TypeInformation) -> Rewrite:
    assert isinstance(before, MapTypeInfo)
    assert isinstance(now, MapTypeInfo)
    found = compatibility(before.value, now.value)
    assert isinstance(found, Migration)
    rewrite = _of_values(before.value, now.value, found)
    return lambda data: NO_VALUE if data == NO_VALUE else rewrite(data)


def _same(data: bytes) -> bytes:
    return data


class RewritingStore(StateStore):
    """A store that returns the values of migrated tables in their new type."""

    def __init__(self, store: StateStore) -> None:
        self.version = store.version
        self._store = store
        self._rewrites: dict[bytes, Rewrite] = {}

    def rewrite(self, table_prefix: bytes, rewrite: Rewrite) -> None:
        """Convert all values of a table from now on."""
        self._rewrites[table_prefix] = rewrite

    def add_unwritten(self, table_prefix: bytes, changes: Delta, delta: Delta) -> None:
        """Append to a delta the changes of a table and, converted, all its other entries."""
        changed = {*changes.keys, *changes.deletes}
        kept = (entry for entry in self.scan(table_prefix) if entry[0] not in changed)
        written = zip(changes.keys, changes.values, strict=True)
        for key, value in merge(kept, written, key=itemgetter(0)):
            delta.keys.append(key)
            delta.values.append(value)
        delta.deletes += changes.deletes

    def get(self, key: bytes) -> bytes | None:  # noqa: D102
        return self._converted(key, self._store.get(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:  # noqa: D102
        return list(map(self._converted, keys, self._store.get_many(keys)))

    def scan_between(  # noqa: D102
        self, start: bytes, stop: bytes | None
    ) -> Iterator[tuple[bytes, bytes]]:
        rewrites = self._rewrites
        for key, value in self._store.scan_between(start, stop):
            rewrite = rewrites.get(key[:2])
            yield key, value if rewrite is None else rewrite(value)

    def close(self) -> None:  # noqa: D102
        self._store.close()

    def _converted(self, key: bytes, value: bytes | None) -> bytes | None:
        rewrite = self._rewrites.get(key[:2])
        return value if rewrite is None or value is None else rewrite(value)
