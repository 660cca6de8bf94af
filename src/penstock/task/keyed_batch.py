"""The head of a keyed stage that takes all records of a micro-batch as one record batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.batches import BatchShape
from penstock.channel.columns import Layout
from penstock.common.event_time import NO_TIMESTAMP
from penstock.datastream.batch_functions import BatchKeys, KeyedBatchFunction
from penstock.graph.job_graph import Node
from penstock.state.key_groups import KeyGroupRange
from penstock.state.keyed import KeyedStates
from penstock.state.keys import KeyCodec, plain_texts
from penstock.task.batch_step import PushColumns, batches_of, declared_shape
from penstock.task.keyed import Part, decode_keys
from penstock.task.keys import key_group_of, merge_dictionaries

__all__ = ["KeyedBatch", "read_keyed_batch", "run_keyed_batch"]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """All records of a micro-batch as columns, each with the number of its key."""

    routed_keys: list[bytes]
    numbers: npt.NDArray[np.int32]
    batch: pa.RecordBatch
    times: pa.Array | None = None
    """The event time of each record, None if they have none."""


def read_keyed_batch(
    node: Node,
    parts: Iterable[Part],
    codec: KeyCodec,
    key_groups: KeyGroupRange | None,
    by_key: bool = False,
) -> KeyedBatch:
    """Gather the parts without making records of them; keep only some key groups if told.

    With ``by_key`` records come one key after the other, in order of time within each.
    """
    shape = declared_shape(node.name, node.input_type)
    gathered = list(parts)
    if not gathered:
        nothing = [pa.array([], field.type) for field in shape.schema]
        empty = pa.RecordBatch.from_arrays(nothing, schema=shape.schema)
        return KeyedBatch([], np.empty(0, np.int32), empty)
    dictionaries = [p.segment.key.dictionary for p in gathered if p.segment.key is not None]
    distinct, numbers_of = merge_dictionaries(dictionaries)
    routed: list[bytes] = distinct.to_pylist()
    own: pa.Array | None = None
    has_time = any(part.segment.times is not None for part in gathered)
    numbers, batches, times_of = [], [], []
    for part, mine in zip(gathered, numbers_of, strict=True):
        segment = part.segment
        assert segment.key is not None, "a keyed channel's segments carry keys"
        by_row = mine[segment.key.indices.to_numpy()]
        numbers.append(by_row)
        if has_time:
            unknown = pa.array([NO_TIMESTAMP] * segment.rows, pa.int64())
            times_of.append(unknown if segment.times is None else segment.times)
        if segment.layout in (Layout.KEY, Layout.TEXT_KEY):
            if own is None:
                own = _key_column(gathered, distinct, routed, codec, shape)
            batches.append(shape.batch((Layout.SCALAR, [own.take(pa.array(by_row))])))
        else:
            batches.append(shape.batch((segment.layout, segment.columns)))
    all_numbers = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times = pa.concat_arrays(times_of) if has_time else None
    given = KeyedBatch(routed, all_numbers, batch, times)
    if key_groups is not None:
        given = _within(key_groups, given)
    return _one_key_after_the_other(given) if by_key else given


def _within(key_groups: KeyGroupRange, given: KeyedBatch) -> KeyedBatch:
    """Keep some key groups, keys and records."""
    routed = given.routed_keys
    wanted = np.fromiter((key_group_of(k) in key_groups for k in routed), bool, len(routed))
    rows = np.flatnonzero(wanted[given.numbers])
    # Keys are what states are asked for: those of other key groups must not be among them.
    numbers = (np.cumsum(wanted, dtype=np.int32) - 1)[given.numbers]
    kept = list(compress(routed, wanted.tolist()))
    return _taken(KeyedBatch(kept, numbers, given.batch, given.times), rows)


def _one_key_after_the_other(given: KeyedBatch) -> KeyedBatch:
    routed = given.routed_keys
    rank = np.empty(len(routed), np.int64)
    rank[sorted(range(len(rank)), key=routed.__getitem__)] = np.arange(len(rank))
    ranks = rank[given.numbers]
    if given.times is None:
        return _taken(given, np.argsort(ranks, kind="stable"))
    return _taken(given, np.lexsort((given.times.to_numpy(), ranks)))


def _taken(given: KeyedBatch, rows: npt.NDArray[np.intp]) -> KeyedBatch:
    at = pa.array(rows)
    times = None if given.times is None else given.times.take(at)
    return KeyedBatch(given.routed_keys, given.numbers[rows], given.batch.take(at), times)


def _key_column(
    parts: list[Part], distinct: pa.Array, routed: list[bytes], codec: KeyCodec, shape: BatchShape
) -> pa.Array:
    """Return the distinct keys as a column, for records that are their own keys."""
    if all(part.segment.layout is Layout.TEXT_KEY for part in parts):
        return plain_texts(distinct)
    return pa.array(decode_keys(parts, distinct, routed, codec), shape.schema[0].type)


def run_keyed_batch(node: Node, states: KeyedStates, given: KeyedBatch, out: PushColumns) -> None:
    """Call the function with all records, if there are any."""
    if not given.batch.num_rows:
        return
    for columns, at in batches_of(node, given.batch, given.times, _Context(states, given)):
        out(columns, at)


class _Keys(BatchKeys):
    def __init__(self, states: KeyedStates, index: npt.NDArray[np.int32], count: int) -> None:
        self.index = pa.array(index, pa.int32())
        self.numbers: Sequence[int] = range(count)
        self._states = states

    def values(self) -> list[Any]:
        return list(map(self._states.key_at, self.numbers))


class _Context(KeyedBatchFunction.Context):
    def __init__(self, states: KeyedStates, given: KeyedBatch) -> None:
        self._states = states
        self._keys = _Keys(states, given.numbers, len(states.routed))
        self._timestamps = given.times

    @property
    def keys(self) -> BatchKeys:
        return self._keys

    @property
    def timestamps(self) -> pa.Array | None:
        return self._timestamps

    def use_key(self, place: int) -> None:
        self._states.current = self._keys.numbers[place]
