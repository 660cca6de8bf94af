"""The head of a keyed stage that processes a micro-batch as one record batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import RecordLayout
from penstock.common.event_time import NO_TIMESTAMP
from penstock.datastream.batch_functions import BatchKeys, KeyedBatchFunction
from penstock.graph.job_graph import Node
from penstock.state.key_groups import KeyGroupRange
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec, plain_texts
from penstock.task.heads.context import HeadContext
from penstock.task.heads.inputs import (
    KEY_LAYOUTS,
    InputSlice,
    decode_keys,
    in_key_groups,
    key_order,
    number_keys,
)
from penstock.task.heads.keyed import key_group_slice, open_keyed_state
from penstock.task.operators.batch_step import batches_of, declared_schema


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """All records of a micro-batch as columns, each with the number of its key."""

    routed_keys: list[bytes]
    numbers: npt.NDArray[np.int32]
    records: pa.RecordBatch
    times: pa.Array | None = None
    """The event time of each record, None if they have none."""

    def take(self, rows: npt.NDArray[np.intp]) -> KeyedBatch:
        """Return some of the records, with all keys."""
        at = pa.array(rows)
        times = None if self.times is None else self.times.take(at)
        return KeyedBatch(self.routed_keys, self.numbers[rows], self.records.take(at), times)


def run_keyed_batch(context: HeadContext) -> None:
    """Call the function with all records of the micro-batch, if there are any."""
    node = context.node
    batch = read_keyed_batch(node, context.slices(), context.key_codec, key_group_slice(context))
    if context.task.batch_mode:
        times = None if batch.times is None else batch.times.to_numpy()
        batch = batch.take(key_order(batch.routed_keys, batch.numbers, times))
    context.result.records_in = len(batch.numbers)
    with open_keyed_state(context, batch.routed_keys) as states:
        if not batch.records.num_rows:
            return
        out = context.chain.columns_downstream_of(node)
        for columns, at in batches_of(node, batch.records, batch.times, _Context(states, batch)):
            out(columns, at)


def read_keyed_batch(
    node: Node,
    slices: Iterable[InputSlice],
    codec: KeyCodec,
    key_groups: KeyGroupRange | None,
) -> KeyedBatch:
    """Gather the columns of slices; with `key_groups`, keep only their keys and records."""
    schema = declared_schema(node.name, node.input_type)
    gathered = list(slices)
    if not gathered:
        return KeyedBatch([], np.empty(0, np.int32), pa.RecordBatch.from_pylist([], schema.schema))
    distinct, numbers = number_keys(gathered)
    routed: list[bytes] = distinct.to_pylist()
    keys: pa.Array | None = None
    has_time = any(part.segment.times is not None for part in gathered)
    batches, times_of = [], []
    for part, by_row in zip(gathered, numbers, strict=True):
        segment = part.segment
        if has_time:
            unknown = pa.array([NO_TIMESTAMP] * segment.rows, pa.int64())
            times_of.append(unknown if segment.times is None else segment.times)
        if segment.layout not in KEY_LAYOUTS:
            batches.append(schema.batch((segment.layout, segment.columns)))
            continue
        if keys is None:
            if all(p.segment.layout is RecordLayout.TEXT_KEY for p in gathered):
                keys = plain_texts(distinct)
            else:
                decoded = decode_keys(gathered, distinct, routed, codec)
                keys = pa.array(decoded, schema.schema[0].type)
        batches.append(schema.batch((RecordLayout.SCALAR, [keys.take(pa.array(by_row))])))
    all_numbers = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
    records = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times = pa.concat_arrays(times_of) if has_time else None
    batch = KeyedBatch(routed, all_numbers, records, times)
    return batch if key_groups is None else _within(key_groups, batch)


def _within(key_groups: KeyGroupRange, batch: KeyedBatch) -> KeyedBatch:
    """Keep the keys and records of some key groups."""
    wanted = in_key_groups(batch.routed_keys, key_groups)
    rows = np.flatnonzero(wanted[batch.numbers])
    # State is looked up for every key: those of other key groups must not be among them.
    numbers = (np.cumsum(wanted, dtype=np.int32) - 1)[batch.numbers]
    kept = list(compress(batch.routed_keys, wanted.tolist()))
    return KeyedBatch(kept, numbers, batch.records, batch.times).take(rows)


class _Keys(BatchKeys):
    def __init__(self, states: KeyedStates, index: npt.NDArray[np.int32], count: int) -> None:
        self.index = pa.array(index, pa.int32())
        self.numbers: Sequence[int] = range(count)
        self._states = states

    def values(self) -> list[Any]:
        return list(map(self._states.key_at, self.numbers))


class _Context(KeyedBatchFunction.Context):
    def __init__(self, states: KeyedStates, batch: KeyedBatch) -> None:
        self._states = states
        self._keys = _Keys(states, batch.numbers, len(states.routed))
        self._timestamps = batch.times

    @property
    def keys(self) -> BatchKeys:
        return self._keys

    @property
    def timestamps(self) -> pa.Array | None:
        return self._timestamps

    def use_key(self, place: int) -> None:
        self._states.current = self._keys.numbers[place]
