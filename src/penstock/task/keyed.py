"""The head of a keyed stage: records with their keys in, state next to the function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import Layout
from penstock.channel.segment import SegmentPart
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
)
from penstock.datastream.state import ReducingState, ReducingStateDescriptor
from penstock.graph.job_graph import Node
from penstock.graph.transformation import OperatorKind
from penstock.state.key_groups import KeyGroupRange, key_of
from penstock.state.keyed import KeyedStates
from penstock.state.keys import KeyCodec, decode_plain_texts
from penstock.task.chain import Push, filter_step, flat_map_step, map_step, two_steps
from penstock.task.context import BroadcastStates, KeyedElementSideContext, KeyedRecordContext
from penstock.task.failure import StepFailed, fail, not_iterable
from penstock.task.keys import key_group_of, merge_dictionaries
from penstock.task.operators import callable_of

STRIDE = 1 << 14
"""Records between two looks at how much the emitters hold."""

REDUCE_STATE = "_reduce_state"


class Part(NamedTuple):
    """Some records of a channel, what decodes them, and which input they come to."""

    segment: SegmentPart
    decode: Callable[[Layout, list[Any]], list[Any]]
    input: int = 0

    def values(self) -> list[Any]:
        """Return the records, for an operator that has no use for their keys."""
        segment = self.segment
        if segment.layout not in _IN_THEIR_KEYS:
            return self.decode(segment.layout, segment.columns)
        assert segment.key is not None
        dictionary = segment.key.dictionary
        keys = _decode_keys([self], dictionary, dictionary.to_pylist(), KeyCodec())
        return list(map(keys.__getitem__, segment.key.indices.to_pylist()))


_IN_THEIR_KEYS = (Layout.KEY, Layout.TEXT_KEY)
"""Layouts of records that are their own keys."""


@dataclass(slots=True)
class KeyedInput:
    """All records of a micro-batch in order, each with the number of its key."""

    routed_keys: list[bytes]
    numbers: Sequence[int]
    values: Sequence[Any]
    inputs: bytes = b""
    """Which input each record came to, a byte for each."""


def read_keyed(
    parts: Iterable[Part],
    codec: KeyCodec,
    key_groups: KeyGroupRange | None,
) -> KeyedInput:
    """Gather the parts, merging their key dictionaries; keep only some key groups if told."""
    gathered = list(parts)
    if not gathered:
        return KeyedInput([], [], [])
    distinct, numbers_of = merge_dictionaries([_dictionary(p.segment) for p in gathered])
    routed: list[bytes] = distinct.to_pylist()
    keys: list[Any] | None = None
    wanted: npt.NDArray[np.bool_] | None = None
    if key_groups is not None:
        wanted = np.fromiter((key_group_of(k) in key_groups for k in routed), bool, len(routed))
    numbers: list[int] = []
    values: list[Any] = []
    inputs = bytearray()
    for (part, decode, input_), mine in zip(gathered, numbers_of, strict=True):
        assert part.key is not None
        mine_by_row = mine[part.key.indices.to_numpy()]
        columns = part.columns
        if wanted is not None:
            rows = np.flatnonzero(wanted[mine_by_row])
            mine_by_row = mine_by_row[rows]
            columns = [c.take(rows) for c in columns]
        numbers_here = mine_by_row.tolist()
        numbers += numbers_here
        inputs += bytes((input_,)) * len(numbers_here)
        if part.layout in _IN_THEIR_KEYS:
            keys = keys or _decode_keys(gathered, distinct, routed, codec)
            values.extend(map(keys.__getitem__, numbers_here))
        else:
            values.extend(decode(part.layout, columns))
    return KeyedInput(routed, numbers, values, bytes(inputs))


def _dictionary(part: SegmentPart) -> pa.Array:
    assert part.key is not None, "a keyed channel's segments carry keys"
    return part.key.dictionary


def _decode_keys(
    parts: list[Part], distinct: pa.Array, routed: list[bytes], codec: KeyCodec
) -> list[Any]:
    if all(part.segment.layout is Layout.TEXT_KEY for part in parts):
        return decode_plain_texts(distinct)
    return [codec.decode(key_of(key)) for key in routed]


def one_key_after_the_other(given: KeyedInput) -> KeyedInput:
    """Sort records by key, keeping the order within each: what BATCH mode promises."""
    rank = np.empty(len(given.routed_keys), np.int64)
    rank[sorted(range(len(rank)), key=given.routed_keys.__getitem__)] = np.arange(len(rank))
    sorting = np.argsort(rank[np.asarray(given.numbers, np.int64)], kind="stable")
    order = sorting.tolist()
    return KeyedInput(
        given.routed_keys,
        list(map(given.numbers.__getitem__, order)),
        list(map(given.values.__getitem__, order)),
        np.frombuffer(given.inputs, np.uint8)[sorting].tobytes(),
    )


class KeyedHead:
    """Runs the keyed operator of a stage over its input."""

    def __init__(
        self,
        node: Node,
        states: KeyedStates,
        out: Push,
        batch_mode: bool,
        broadcast: BroadcastStates | None = None,
    ) -> None:
        self._node = node
        self._broadcast = broadcast
        self._states = states
        self._out = out
        self._batch_mode = batch_mode

    def run(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Process all records; `after_stride` is called now and then in between."""
        kind = self._node.kind
        pairs = zip(given.numbers, given.values, strict=True)
        strides = range(0, len(given.numbers), STRIDE)
        if kind is OperatorKind.REDUCE and self._batch_mode:
            self._reduce_once_per_key(pairs, len(given.numbers), after_stride)
        elif kind in (OperatorKind.KEYED_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS):
            for _ in strides:
                self._process(islice(pairs, STRIDE))
                after_stride()
        elif kind.has_two_inputs:
            self._run_two_inputs(given, after_stride)
        else:
            push = self._step()
            for _ in strides:
                for self._states.current, value in islice(pairs, STRIDE):
                    push(value)
                after_stride()

    def _process(self, pairs: Iterable[tuple[int, Any]]) -> None:
        process = self._node.function.process_element
        context: KeyedRecordContext | KeyedElementSideContext = KeyedRecordContext(self._states)
        if self._broadcast is not None:
            context = KeyedElementSideContext(self._broadcast, self._states)
        states, out = self._states, self._out
        value = results = None
        try:
            for states.current, value in pairs:
                results = process(value, context)
                if results is not None:
                    for result in results:
                        out(result)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, not_iterable(error, results))

    def _run_two_inputs(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        context, function = KeyedRecordContext(self._states), self._node.function
        is_process = self._node.kind is OperatorKind.KEYED_CO_PROCESS
        calls: Sequence[Callable[..., Any]] = (
            (function.process_element1, function.process_element2)
            if is_process
            else two_steps(self._node, self._out, context)
        )
        called = map(calls.__getitem__, given.inputs)
        triples = zip(given.numbers, given.values, called, strict=True)
        for _ in range(0, len(given.numbers), STRIDE):
            if is_process:
                self._co_process(islice(triples, STRIDE), context)
            else:
                for self._states.current, value, push in islice(triples, STRIDE):
                    push(value)
            after_stride()

    def _co_process(
        self,
        triples: Iterable[tuple[int, Any, Callable[..., Any]]],
        context: KeyedRecordContext,
    ) -> None:
        states, out = self._states, self._out
        value = results = None
        try:
            for states.current, value, process in triples:
                results = process(value, context)
                if results is not None:
                    for result in results:
                        out(result)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, not_iterable(error, results))

    def _step(self) -> Push:
        name, out = self._node.name, self._out
        if self._node.kind is OperatorKind.REDUCE:
            return self._reduce_each(self._reducing_state())
        function = self._node.function
        if self._node.kind is OperatorKind.KEYED_MAP:
            return map_step(name, callable_of(function, MapFunction), out)
        if self._node.kind is OperatorKind.KEYED_FILTER:
            return filter_step(name, callable_of(function, FilterFunction), out)
        return flat_map_step(name, callable_of(function, FlatMapFunction), out)

    def _reducing_state(self) -> ReducingState[Any]:
        reduce = callable_of(self._node.function, ReduceFunction)
        descriptor = ReducingStateDescriptor(REDUCE_STATE, reduce, self._node.output_type)
        return self._states.get_reducing_state(descriptor)

    def _reduce_each(self, state: ReducingState[Any]) -> Push:
        name, out = self._node.name, self._out

        def push(value: Any) -> None:
            try:
                state.add(value)
                result = state.get()
            except (Exception, SystemExit) as error:
                fail(name, value, error)
            out(result)

        return push

    def _reduce_once_per_key(
        self, pairs: Iterable[tuple[int, Any]], count: int, after_stride: Callable[[], None]
    ) -> None:
        state, states, out = self._reducing_state(), self._states, self._out
        before: int | None = None
        value: Any = None
        try:
            for i, (number, value) in enumerate(pairs):
                if number != before:
                    if before is not None:
                        out(state.get())
                    states.current = before = number
                state.add(value)
                if i % STRIDE == 0:
                    after_stride()
            if count:
                out(state.get())
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, error)
