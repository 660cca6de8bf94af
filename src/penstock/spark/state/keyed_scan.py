"""Reads keyed state and timers, in partitions of key groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import Filter

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.snapshots.json_values import encoded_key, key_of_text
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import OpenPart, StatePart
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part
from penstock.spark.state.filters import keys_left
from penstock.spark.state.options import StateOptions
from penstock.spark.state.scan import KeptSnapshot, Scan, StatePartition, kept, renewed
from penstock.spark.state.shapes import KeyedShape, TimerShape
from penstock.state.backends.store import end_of_prefix
from penstock.state.key_groups import KeyGroupRange, key_groups_of, routed_key

_LOOKED_UP_AT_ONCE = 4096

Shape = KeyedShape | TimerShape


@dataclass(frozen=True)
class KeyedScan(Scan):
    """One keyed state of an operator, or its timers of all time domains."""

    snapshot: StoredSnapshot
    kept: KeptSnapshot
    operator: OperatorSnapshot
    shapes: tuple[Shape, ...]
    """One for each time domain of timers, of the same schema."""
    keys: frozenset[bytes] | None
    """The stored bytes of the keys to read, None for all."""
    min_partitions: int

    @property
    def schema(self) -> pa.Schema:  # noqa: D102
        return self.shapes[0].schema

    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:  # noqa: D102
        left = keys_left(self.shapes[0].state, filters)
        if left is None or self.keys is None:
            left = self.keys if left is None else left
        else:
            left &= self.keys
        self.kept.renewed()
        parts = self.snapshot.parts(self.operator)
        if left is None:
            split = _split(parts, self.min_partitions)
            return [KeyedPartition(self.kept, self.shapes, *one, keys=None) for one in split]
        return [
            KeyedPartition(self.kept, self.shapes, part, part.key_groups, keys)
            for part, keys in _by_part(parts, left, self.operator.max_parallelism)
        ]


@dataclass
class KeyedPartition(StatePartition):
    """The key groups of one part, or some keys of it."""

    snapshot: KeptSnapshot
    shapes: tuple[Shape, ...]
    part: StatePart
    key_groups: KeyGroupRange
    keys: tuple[bytes, ...] | None

    def batches(self) -> Iterator[pa.RecordBatch]:  # noqa: D102
        with kept([self.snapshot]) as pins, opened_part(self.part) as opened:
            for shape in self.shapes:
                found = shape.batches(self._tables(opened, shape.state), self.part.subtask)
                yield from renewed(found, pins)

    def _tables(self, opened: OpenPart, state: KeyedState) -> Iterator[pa.Table]:
        if self.keys is None:
            start, stop = self.key_groups.start, self.key_groups.stop
            return opened.tables(state, start.to_bytes(2, "big"), stop.to_bytes(2, "big"))
        look_up = _timers_of if state.are_timers else _rows_of
        return _joined(state.schema, chain.from_iterable(look_up(opened, state, self.keys)))


def keys_of_options(options: StateOptions, state: KeyedState) -> frozenset[bytes] | None:
    """Return the stored bytes of the keys that the options name, None if they name none.

    Raises:
        KeyNotOfTypeError: one is not of the type of the keys.
    """
    given: Sequence[Any] | None = options.keys
    if options.unparsed_key is not None:
        given = [key_of_text(state.key_codec, options.unparsed_key, _decode)]
    if given is None:
        return None
    return frozenset(encoded_key(state.key_codec, key) for key in given)


def _decode(text: str) -> Any:
    return msgspec.json.decode(text)


def _split(parts: Sequence[StatePart], at_least: int) -> Iterator[tuple[StatePart, KeyGroupRange]]:
    """Divide the key groups of parts into ranges of about the same size."""
    pieces = -(-at_least // max(1, len(parts)))
    for part in parts:
        first, count = part.key_groups.start, len(part.key_groups)
        bounds = sorted({first + count * piece // pieces for piece in range(pieces + 1)})
        for start, stop in pairwise(bounds):
            yield part, KeyGroupRange(start, stop)


def _by_part(
    parts: Sequence[StatePart], keys: frozenset[bytes], max_parallelism: int
) -> Iterator[tuple[StatePart, tuple[bytes, ...]]]:
    ordered = sorted(keys)
    groups = key_groups_of(ordered, max_parallelism).tolist()
    for part in parts:
        mine = [(g, key) for g, key in zip(groups, ordered, strict=True) if g in part.key_groups]
        if mine:
            yield part, tuple(routed_key(key, group) for group, key in sorted(mine))


def _rows_of(
    opened: OpenPart, state: KeyedState, keys: Sequence[bytes]
) -> Iterator[Iterator[pa.Table]]:
    for routed in keys:
        yield opened.tables(state, routed, end_of_prefix(routed))


def _timers_of(
    opened: OpenPart, state: KeyedState, keys: Sequence[bytes]
) -> Iterator[Iterator[pa.Table]]:
    """Iterate over the timers of keys, which are stored by their times."""
    for group in sorted({key[:2] for key in keys}):
        mine = [key[2:] for key in keys if key[:2] == group]
        tables = opened.tables(state, group, end_of_prefix(group))
        yield (_of_keys(table, mine) for table in tables)


def _of_keys(timers: pa.Table, keys: Sequence[bytes]) -> pa.Table:
    stored = timers.column("map_key_bytes")
    found = pc.starts_with(stored, keys[0])
    for key in keys[1:]:
        found = pc.or_(found, pc.starts_with(stored, key))
    return timers.filter(found)


def _joined(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Make few tables of many small ones."""
    found: list[pa.Table] = []
    rows = 0
    for table in tables:
        found.append(table)
        rows += table.num_rows
        if rows >= _LOOKED_UP_AT_ONCE:
            yield pa.concat_tables(found)
            found, rows = [], 0
    if rows:
        yield pa.concat_tables(found)
