"""Merges sorted state streams: compacts deltas, and merges key groups of several subtasks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain
from operator import itemgetter

from penstock.errors import CorruptStateError, PickledSnapshotError
from penstock.state.delta import Block, Entry, blocks_of_entries
from penstock.state.key_groups import KeyGroupRange
from penstock.state.registry.meta_info import (
    REGISTRY,
    StateMetaInfo,
    decode_info,
    registry_key,
    registry_name,
    table_prefix,
)
from penstock.state.registry.migration import merged_registry, rewriters
from penstock.types.signature import PICKLED

Overlay = dict[bytes, bytes | None]


def entries_of(
    blocks: Iterable[Block], start: bytes = b"", stop: bytes | None = None
) -> Iterator[Entry]:
    """Iterate over the puts in blocks, from a key up to, not including, another one."""
    for block in blocks:
        low = bisect_left(block.keys, start) if start else 0
        high = len(block.keys) if stop is None else bisect_left(block.keys, stop)
        yield from zip(block.keys[low:high], block.values[low:high], strict=True)
        if high < len(block.keys):
            return


def overlay_of(deltas: Iterable[Iterable[Block]]) -> Overlay:
    """Return the effect of several deltas, oldest first, by key: a value, or None for deleted."""
    overlay: Overlay = {}
    for blocks in deltas:
        for block in blocks:
            overlay.update(zip(block.keys, block.values, strict=True))
            overlay.update(dict.fromkeys(block.deletes))
    return overlay


def compacted(base: Iterable[Block], overlay: Overlay) -> Iterator[Block]:
    """Apply changes to a base; holds the changes and one block of the base in memory."""
    changed = sorted(overlay)
    at = 0
    for block in base:
        stop = bisect_right(changed, block.keys[-1], at)
        if stop == at:
            yield block
            continue
        entries: Overlay = dict(zip(block.keys, block.values, strict=True))
        entries.update((key, overlay[key]) for key in changed[at:stop])
        at = stop
        yield from blocks_of_entries(sorted(_present(entries.items())))
    yield from blocks_of_entries(_present((key, overlay[key]) for key in changed[at:]))


def merge_key_groups(
    sources: Sequence[Iterator[Entry]], key_groups: KeyGroupRange, where: str
) -> Iterator[Entry]:
    """Merge whole states of one operator, keeping a range of key groups.

    Subtasks number their tables in the order in which they first declare states, which may differ:
    tables are matched by the names in the registries. A state that only some subtasks have migrated
    is returned in its newer type.
    """
    opened = [_split_registry(source) for source in sources]
    registry = merged_registry([known for known, _ in opened], where)
    for name in sorted(registry):
        yield registry_key(name), registry[name].encode()
    streams = []
    for known, entries in opened:
        kept = _rewritten(_clipped(entries, key_groups), rewriters(known, registry))
        moves = {info.table: registry[name].table for name, info in known.items()}
        streams.append(kept if _in_place(moves) else _moved(kept, moves))
    yield from merge(*streams, key=itemgetter(0))


def reject_pickled(entries: Iterator[Entry], snapshot: str, step: str) -> Iterator[Entry]:
    """Pass on the entries of a whole state, unless some of its values are pickled.

    Raises:
        PickledSnapshotError: naming the states that are.
        CorruptStateError: an entry belongs to no registered state: a state that the program
            declares later could be given its table.
    """
    registry, entries = _split_registry(entries)
    yield from ((registry_key(name), info.encode()) for name, info in sorted(registry.items()))
    names = {table_prefix(info.table): name for name, info in registry.items()}
    pickled = {table_prefix(info.table) for info in registry.values() if PICKLED in info.type}
    for key, value in entries:
        if key[:2] in pickled:
            found = sorted(f"state {names[table]!r} of {step!r}" for table in pickled)
            raise PickledSnapshotError(snapshot, tuple(found))
        if key[:2] not in names:
            raise CorruptStateError(snapshot, f"table {key[:2].hex()} of {step!r} is unknown")
        yield key, value


def _present(entries: Iterable[tuple[bytes, bytes | None]]) -> Iterator[Entry]:
    return ((key, value) for key, value in entries if value is not None)


def _split_registry(
    entries: Iterator[Entry],
) -> tuple[dict[str, StateMetaInfo], Iterator[Entry]]:
    known: dict[str, StateMetaInfo] = {}
    prefix = table_prefix(REGISTRY)
    for key, value in entries:
        if not key.startswith(prefix):
            return known, chain([(key, value)], entries)
        known[registry_name(key)] = decode_info(value)
    return known, entries


def _clipped(entries: Iterable[Entry], key_groups: KeyGroupRange) -> Iterator[Entry]:
    start = key_groups.start.to_bytes(2, "big")
    stop = key_groups.stop.to_bytes(2, "big")
    return (entry for entry in entries if start <= entry[0][2:4] < stop)


def _rewritten(
    entries: Iterator[Entry], rewrites: dict[bytes, Callable[[bytes], bytes]]
) -> Iterator[Entry]:
    if not rewrites:
        return entries
    return (
        (key, rewrites[key[:2]](value) if key[:2] in rewrites else value) for key, value in entries
    )


def _in_place(moves: dict[int, int]) -> bool:
    return all(old == new for old, new in moves.items())


def _moved(entries: Iterable[Entry], moves: dict[int, int]) -> Iterator[Entry]:
    prefixes = {table_prefix(old): table_prefix(new) for old, new in moves.items()}
    return iter(sorted((prefixes[key[:2]] + key[2:], value) for key, value in entries))
