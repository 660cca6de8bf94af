"""The input of a stage's head in one task: slices of channels, and records with their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import RecordLayout, decoder_for
from penstock.channel.segment import DecodedSlice, read_slices
from penstock.common.event_time import NO_TIMESTAMP
from penstock.graph.plan import Channel
from penstock.state.key_groups import KeyGroupRange, key_of
from penstock.state.keys import KeyCodec, decode_plain_texts
from penstock.task.layout import AttemptLayout
from penstock.task.messages import SubtaskWork
from penstock.task.partitioning.key_table import key_group_of, merge_dictionaries
from penstock.task.shuffle.records import ShuffleInput

KEY_LAYOUTS = (RecordLayout.KEY, RecordLayout.TEXT_KEY)
"""Layouts of records that are their own keys."""


class InputSlice(NamedTuple):
    """Some records of a channel, their decoder, and the input of the operator they belong to."""

    segment: DecodedSlice
    decode: Callable[[RecordLayout, list[Any]], list[Any]]
    input: int = 0

    def values(self) -> list[Any]:
        """Return the records, for an operator that does not use their keys."""
        segment = self.segment
        if segment.layout not in KEY_LAYOUTS:
            return self.decode(segment.layout, segment.columns)
        assert segment.key is not None
        dictionary = segment.key.dictionary
        keys = decode_keys([self], dictionary, dictionary.to_pylist(), KeyCodec())
        return list(map(keys.__getitem__, segment.key.indices.to_pylist()))


def input_slices(
    channels: Iterable[Channel],
    layout: AttemptLayout,
    work: SubtaskWork,
    shuffle: ShuffleInput | None = None,
) -> Iterator[InputSlice]:
    """Yield the input of one subtask, channel by channel."""
    for channel in channels:
        decode = decoder_for(channel.record_type)
        for read in work.segments.get(channel.id, ()):
            path = layout.channel(channel.id) / read.name
            for part in read_slices(path, read.slices):
                yield InputSlice(part, decode, channel.input)
        for part in () if shuffle is None else shuffle.slices(channel.id):
            yield InputSlice(part, decode, channel.input)


@dataclass(slots=True)
class KeyedInput:
    """All records of a micro-batch in order, each with the number of its key."""

    routed_keys: list[bytes]
    numbers: Sequence[int]
    values: Sequence[Any]
    inputs: bytes = b""
    """The input of the operator that each record belongs to, one byte per record."""
    times: Sequence[int] | None = None
    """The event time of each record, None if they have none."""

    def timestamps(self) -> Iterable[int]:
        """Iterate over the event time of each record, `NO_TIMESTAMP` if it has none."""
        return repeat(NO_TIMESTAMP, len(self.numbers)) if self.times is None else self.times


def read_keyed(
    slices: Iterable[InputSlice], codec: KeyCodec, key_groups: KeyGroupRange | None
) -> KeyedInput:
    """Read slices and merge their key dictionaries; with `key_groups`, keep only their records."""
    gathered = list(slices)
    if not gathered:
        return KeyedInput([], [], [])
    distinct, numbers_of = number_keys(gathered)
    routed: list[bytes] = distinct.to_pylist()
    keys: list[Any] | None = None
    wanted = None if key_groups is None else in_key_groups(routed, key_groups)
    numbers: list[int] = []
    values: list[Any] = []
    times: list[int] = []
    has_time = any(s.segment.times is not None for s in gathered)
    inputs = bytearray()
    for (segment, decode, input_), by_row in zip(gathered, numbers_of, strict=True):
        columns, at = segment.columns, segment.times
        if wanted is not None:
            rows = np.flatnonzero(wanted[by_row])
            by_row = by_row[rows]
            columns = [c.take(rows) for c in columns]
            at = None if at is None else at.take(rows)
        numbers_here = by_row.tolist()
        numbers += numbers_here
        inputs += bytes((input_,)) * len(numbers_here)
        if has_time:
            times += [NO_TIMESTAMP] * len(numbers_here) if at is None else at.to_numpy().tolist()
        if segment.layout in KEY_LAYOUTS:
            keys = keys or decode_keys(gathered, distinct, routed, codec)
            values.extend(map(keys.__getitem__, numbers_here))
        else:
            values.extend(decode(segment.layout, columns))
    return KeyedInput(routed, numbers, values, bytes(inputs), times if has_time else None)


def number_keys(slices: Sequence[InputSlice]) -> tuple[pa.Array, list[npt.NDArray[np.int32]]]:
    """Return the distinct keys of slices, and per slice the number of each record's key."""
    columns = [key for s in slices if (key := s.segment.key) is not None]
    assert len(columns) == len(slices), "a keyed channel's segments carry keys"
    distinct, numbers_of = merge_dictionaries([c.dictionary for c in columns])
    pairs = zip(columns, numbers_of, strict=True)
    return distinct, [numbers[column.indices.to_numpy()] for column, numbers in pairs]


def in_key_groups(routed: Sequence[bytes], key_groups: KeyGroupRange) -> npt.NDArray[np.bool_]:
    """Return, for each key, whether it belongs to one of some key groups."""
    return np.fromiter((key_group_of(k) in key_groups for k in routed), bool, len(routed))


def decode_keys(
    slices: Sequence[InputSlice], distinct: pa.Array, routed: list[bytes], codec: KeyCodec
) -> list[Any]:
    """Return the distinct keys of slices whose records are their own keys."""
    if all(s.segment.layout is RecordLayout.TEXT_KEY for s in slices):
        return decode_plain_texts(distinct)
    return [codec.decode(key_of(key)) for key in routed]


def key_order(
    routed: Sequence[bytes], numbers: npt.NDArray[Any], times: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.intp]:
    """Return the order of records by key, then by event time, that BATCH mode promises.

    The sort is stable.
    """
    rank = np.empty(len(routed), np.int64)
    rank[sorted(range(len(rank)), key=routed.__getitem__)] = np.arange(len(rank))
    ranks = rank[numbers]
    return np.argsort(ranks, kind="stable") if times is None else np.lexsort((times, ranks))


def sort_by_key(records: KeyedInput) -> KeyedInput:
    """Sort records by key, then by event time, for BATCH mode."""
    times = None if records.times is None else np.asarray(records.times, np.int64)
    sorting = key_order(records.routed_keys, np.asarray(records.numbers, np.int64), times)
    order = sorting.tolist()
    return KeyedInput(
        records.routed_keys,
        list(map(records.numbers.__getitem__, order)),
        list(map(records.values.__getitem__, order)),
        np.frombuffer(records.inputs, np.uint8)[sorting].tobytes(),
        None if records.times is None else list(map(records.times.__getitem__, order)),
    )
