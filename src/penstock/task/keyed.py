"""The head of a keyed stage: records with their keys in, state next to the function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import Layout
from penstock.channel.segment import SegmentPart
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
)
from penstock.datastream.state import ReducingState, ReducingStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.errors import Called
from penstock.graph.job_graph import Node
from penstock.graph.transformation import OperatorKind
from penstock.state.key_groups import KeyGroupRange, key_of
from penstock.state.keyed import KeyedStates
from penstock.state.keys import KeyCodec, decode_plain_texts
from penstock.task.chain import Push, filter_step, flat_map_step, map_step, two_steps
from penstock.task.context import BroadcastStates, KeyedElementSideContext, KeyedRecordContext
from penstock.task.failure import StepFailed, fail, not_iterable
from penstock.task.keys import key_group_of, merge_dictionaries
from penstock.task.messages import TimeOrder
from penstock.task.moment import Moment
from penstock.task.operators import callable_of
from penstock.task.timer_service import Timers

Process = Callable[[Any, Any], Any]

Record = tuple[int, int, Any, Process]
"""The number of its key, its event time, what it is, and who processes it."""

_HAVE_TIMERS = frozenset(
    {
        OperatorKind.KEYED_PROCESS,
        OperatorKind.KEYED_CO_PROCESS,
        OperatorKind.KEYED_BROADCAST_PROCESS,
    }
)

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
        keys = decode_keys([self], dictionary, dictionary.to_pylist(), KeyCodec())
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
    times: Sequence[int] | None = None
    """The event time of each record, None if they have none."""

    def timestamps(self) -> Iterable[int]:
        """Iterate over the event time of each record, or over what stands for none."""
        return repeat(NO_TIMESTAMP, len(self.numbers)) if self.times is None else self.times


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
    times: list[int] = []
    has_time = any(p.segment.times is not None for p in gathered)
    inputs = bytearray()
    for (part, decode, input_), mine in zip(gathered, numbers_of, strict=True):
        assert part.key is not None
        mine_by_row = mine[part.key.indices.to_numpy()]
        columns, at = part.columns, part.times
        if wanted is not None:
            rows = np.flatnonzero(wanted[mine_by_row])
            mine_by_row = mine_by_row[rows]
            columns = [c.take(rows) for c in columns]
            at = None if at is None else at.take(rows)
        numbers_here = mine_by_row.tolist()
        numbers += numbers_here
        inputs += bytes((input_,)) * len(numbers_here)
        if has_time:
            times += [NO_TIMESTAMP] * len(numbers_here) if at is None else at.to_numpy().tolist()
        if part.layout in _IN_THEIR_KEYS:
            keys = keys or decode_keys(gathered, distinct, routed, codec)
            values.extend(map(keys.__getitem__, numbers_here))
        else:
            values.extend(decode(part.layout, columns))
    return KeyedInput(routed, numbers, values, bytes(inputs), times if has_time else None)


def _dictionary(part: SegmentPart) -> pa.Array:
    assert part.key is not None, "a keyed channel's segments carry keys"
    return part.key.dictionary


def decode_keys(
    parts: list[Part], distinct: pa.Array, routed: list[bytes], codec: KeyCodec
) -> list[Any]:
    """Return the distinct keys of parts whose records are their own keys."""
    if all(part.segment.layout is Layout.TEXT_KEY for part in parts):
        return decode_plain_texts(distinct)
    return [codec.decode(key_of(key)) for key in routed]


def one_key_after_the_other(given: KeyedInput) -> KeyedInput:
    """Sort records by key and by event time, else keeping their order: what BATCH mode promises."""
    rank = np.empty(len(given.routed_keys), np.int64)
    rank[sorted(range(len(rank)), key=given.routed_keys.__getitem__)] = np.arange(len(rank))
    ranks = rank[np.asarray(given.numbers, np.int64)]
    if given.times is None:
        sorting = np.argsort(ranks, kind="stable")
    else:
        sorting = np.lexsort((np.asarray(given.times, np.int64), ranks))
    order = sorting.tolist()
    return KeyedInput(
        given.routed_keys,
        list(map(given.numbers.__getitem__, order)),
        list(map(given.values.__getitem__, order)),
        np.frombuffer(given.inputs, np.uint8)[sorting].tobytes(),
        None if given.times is None else list(map(given.times.__getitem__, order)),
    )


@dataclass(frozen=True, slots=True)
class HeadTime:
    """What the head of a keyed stage knows of time."""

    moment: Moment
    order: TimeOrder
    timers: Timers
    service: TimerService


class KeyedHead:
    """Runs the keyed operator of a stage over its input."""

    def __init__(
        self,
        node: Node,
        states: KeyedStates,
        out: Push,
        time: HeadTime,
        batch_mode: bool,
        broadcast: BroadcastStates | None = None,
    ) -> None:
        self._node = node
        self._states = states
        self._out = out
        self._moment = time.moment
        self._time = time
        self._batch_mode = batch_mode
        self._context: KeyedRecordContext | KeyedElementSideContext = KeyedRecordContext(
            states, time.moment, time.service
        )
        if broadcast is not None:
            self._context = KeyedElementSideContext(broadcast, states, time.moment, time.service)

    def run(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Process all records and fire timers; `after_stride` is called now and then in between."""
        kind = self._node.kind
        if kind is OperatorKind.REDUCE and self._batch_mode:
            pairs = zip(given.numbers, given.values, strict=True)
            self._reduce_once_per_key(pairs, len(given.numbers), after_stride)
            return
        if kind not in _HAVE_TIMERS:
            self._run_steps(given, after_stride)
            return
        calls: Iterable[Process]
        if kind is OperatorKind.KEYED_CO_PROCESS:
            function = self._node.function
            both = (function.process_element1, function.process_element2)
            calls = map(both.__getitem__, given.inputs)
        else:
            calls = repeat(self._node.function.process_element)
        records = zip(given.numbers, given.timestamps(), given.values, calls, strict=False)
        if self._batch_mode:
            self._process_by_key(records, after_stride)
            return
        time = self._time
        self._fire(TimeDomain.PROCESSING_TIME, self._moment.started, after_stride)
        for _ in range(0, len(given.numbers), STRIDE):
            self._process(islice(records, STRIDE))
            after_stride()
        # As in Flink, a timer that is set for the past waits for the next watermark.
        if time.order.watermark > time.order.before:
            self._moment.watermark = time.order.watermark
            self._fire(TimeDomain.EVENT_TIME, time.order.watermark, after_stride)

    def _process_by_key(self, records: Iterable[Record], after_stride: Callable[[], None]) -> None:
        """Let all time pass for a key before the next one begins, as BATCH mode does."""
        moment = self._moment
        for _, of_key in groupby(records, key=itemgetter(0)):
            self._process(of_key)
            moment.watermark = MAX_WATERMARK
            self._fire(TimeDomain.EVENT_TIME, MAX_WATERMARK, after_stride)
            self._fire(TimeDomain.PROCESSING_TIME, MAX_WATERMARK, after_stride)
            moment.watermark = MIN_WATERMARK
            after_stride()

    def _process(self, records: Iterable[Record]) -> None:
        states, moment, context, out = self._states, self._moment, self._context, self._out
        value = results = None
        try:
            for states.current, moment.timestamp, value, process in records:
                results = process(value, context)
                if results is not None:
                    for result in results:
                        out(result)
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, not_iterable(error, results))

    def _fire(self, domain: TimeDomain, until: int, after_stride: Callable[[], None]) -> None:
        # A function of two streams without keys may run on keyed ones, and knows no timers.
        on_timer = getattr(self._node.function, "on_timer", lambda time, context: None)
        context, out, moment = self._context, self._out, self._moment
        context.domain = domain
        is_event_time = domain is TimeDomain.EVENT_TIME
        time, results = 0, None
        try:
            for count, (time, _) in enumerate(self._time.timers.due(domain, until), 1):
                moment.timestamp = time
                results = on_timer(time, context)
                if results is not None:
                    for result in results:
                        # The time of a clock is no event time: as in Flink, it goes no further.
                        moment.timestamp = time if is_event_time else NO_TIMESTAMP
                        out(result)
                        moment.timestamp = time
                if count % STRIDE == 0:
                    after_stride()
        except StepFailed:
            raise
        except (Exception, SystemExit) as error:
            fail(self._node.name, Called(f"on_timer({time})"), not_iterable(error, results))
        moment.timestamp = NO_TIMESTAMP

    def _run_steps(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Run an operator that takes a record and knows nothing of timers."""
        steps = (
            two_steps(self._node, self._out, self._context)
            if self._node.kind.has_two_inputs
            else (self._step(),)
        )
        calls = map(steps.__getitem__, given.inputs) if len(steps) > 1 else repeat(steps[0])
        records = zip(given.numbers, given.timestamps(), given.values, calls, strict=False)
        states, moment = self._states, self._moment
        for _ in range(0, len(given.numbers), STRIDE):
            for states.current, moment.timestamp, value, push in islice(records, STRIDE):
                push(value)
            after_stride()

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
