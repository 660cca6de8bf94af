"""Heads of keyed stages that process record by record, with state and timers per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any

from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP
from penstock.datastream.functions import ReduceFunction
from penstock.datastream.state import ReducingState, ReducingStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.errors import MethodCall
from penstock.graph.transformation import OperatorKind
from penstock.state.backends.refs import StateRef
from penstock.state.backends.registry import create_state_backend
from penstock.state.key_groups import KeyGroupRange, key_group_range
from penstock.state.keyed.states import KeyedStates
from penstock.state.local_dir import remove_older_attempts
from penstock.task.failure import fail, not_iterable
from penstock.task.heads.context import STRIDE, HeadContext
from penstock.task.heads.inputs import KeyedInput, read_keyed, sort_by_key
from penstock.task.operators.contexts import KeyedElementSideContext, KeyedRecordContext
from penstock.task.operators.functions import callable_of
from penstock.task.operators.steps import Push, function_step, two_steps
from penstock.task.time.timer_service import InternalTimerService

Process = Callable[[Any, Any], Any]

Record = tuple[int, int, Any, Process]
"""The number of its key, its event time, its value, and the method that processes it."""

_HAVE_TIMERS = (
    OperatorKind.KEYED_PROCESS,
    OperatorKind.KEYED_CO_PROCESS,
    OperatorKind.KEYED_BROADCAST_PROCESS,
)

REDUCE_STATE = "_reduce_state"
"""A name in savepoints: it must not change."""

MakeHead = Callable[[HeadContext, KeyedStates, Push, InternalTimerService], Any]
"""Creates an object with a method `run` like that of `KeyedHead`."""


def run_keyed(context: HeadContext) -> None:
    """Run the keyed operator of a stage over the input."""
    run_records(context, KeyedHead)


def run_records(context: HeadContext, make_head: MakeHead) -> None:
    """Read the input by key, open the state, and run a head over it."""
    node, result = context.node, context.result
    batch = read_keyed(context.slices(), context.key_codec, key_group_slice(context))
    if context.task.batch_mode:
        batch = sort_by_key(batch)
    result.records_in = len(batch.numbers)
    with open_keyed_state(context, batch.routed_keys) as states:
        out, broadcast = context.chain.downstream_of(node), context.functions.broadcast
        part, _ = context.instruction.key_slice or (0, 1)
        # The broadcast side has no keys: the first part of the key groups processes all of it.
        if broadcast is not None and part == 0:
            push = context.chain.broadcast_side(node, out, broadcast)
            for broadcast_slice in context.slices(broadcast=True):
                context.push_slice(broadcast_slice, push)
        record_time, first = context.record_time, context.work.timers
        timers = InternalTimerService(states, first, own_key_groups(context), record_time)
        make_head(context, states, out, timers).run(batch, context.flush_if_full)
        result.timers = timers.first()


@contextmanager
def open_keyed_state(context: HeadContext, routed_keys: list[bytes]) -> Iterator[KeyedStates]:
    """Open the state of some keys, and the functions on top; at the end stage what changed."""
    node, task, instruction = context.node, context.task, context.instruction
    phases, result, states = context.phases, context.result, context.functions.states
    assert states is not None
    phases.mark("read")
    remove_older_attempts(task.layout.attempt_dirs)
    place = task.layout.place(node.uid, context.subtask)
    # BATCH mode finishes a key before it starts the next: there is nothing to keep afterwards.
    backend = create_state_backend("memory" if task.batch_mode else task.backend, node.name)
    ref = context.work.state or StateRef(version=0)
    for unneeded in context.work.unneeded:
        (place.shared_dir / unneeded).unlink(missing_ok=True)
    store = backend.on_host(place, lambda location: backend.open(location, ref))
    result.rebuilt = store.was_rebuilt
    try:
        if instruction.snapshot:
            phases.mark("open state")
            result.snapshot = store.snapshot(context.staged)
            phases.mark("snapshot")
        states.bind(store, routed_keys, now=instruction.now)
        context.start_functions()
        phases.mark("open state")
        yield states
        phases.mark("process")
        if not task.batch_mode and (delta := states.take_delta()):
            result.state = backend.stage(place.shared, delta, context.staged, instruction.batch)
            phases.mark("stage state")
        if task.rocksdb_metrics:
            result.rocksdb = states.rocksdb_metrics(task.rocksdb_metrics)
        # From here on a function that writes state fails: the delta is taken, it would be lost.
        states.release()
    finally:
        store.close()


def own_key_groups(context: HeadContext) -> KeyGroupRange:
    """Return the key groups of this subtask."""
    node = context.node
    return key_group_range(node.max_parallelism, node.parallelism, context.subtask)


def key_group_slice(context: HeadContext) -> KeyGroupRange | None:
    """Return the part of them that this micro-batch processes, None for all."""
    if context.instruction.key_slice is None:
        return None
    part, of = context.instruction.key_slice
    own = own_key_groups(context)
    size = len(own)
    return KeyGroupRange(own.start + size * part // of, own.start + size * (part + 1) // of)


class KeyedHead:
    """Runs the keyed operator of a stage over its input."""

    def __init__(
        self, context: HeadContext, states: KeyedStates, out: Push, timers: InternalTimerService
    ) -> None:
        self._node = context.node
        self._time = context.instruction.time
        self._batch_mode = context.task.batch_mode
        self._states = states
        self._out = out
        self._timers = timers
        self._record_time = record_time = timers.record_time
        self._counts = context.chain.counts
        broadcast = context.functions.broadcast
        self._context: KeyedRecordContext | KeyedElementSideContext = (
            KeyedRecordContext(states, record_time, timers)
            if broadcast is None
            else KeyedElementSideContext(broadcast, states, record_time, timers)
        )

    def run(self, batch: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Process all records and fire timers; `after_stride` is called every few thousand."""
        kind = self._node.kind
        if kind is OperatorKind.REDUCE and self._batch_mode:
            self._reduce_once_per_key(batch, after_stride)
            return
        if kind not in _HAVE_TIMERS:
            self._run_steps(batch, after_stride)
            return
        calls: Iterable[Process]
        if kind is OperatorKind.KEYED_CO_PROCESS:
            function = self._node.function
            both = (function.process_element1, function.process_element2)
            calls = map(both.__getitem__, batch.inputs)
        else:
            calls = repeat(self._node.function.process_element)
        records = zip(batch.numbers, batch.timestamps(), batch.values, calls, strict=False)
        if self._batch_mode:
            self._process_by_key(records, after_stride)
            return
        watermark = self._time.watermark_after
        self._fire(TimeDomain.PROCESSING_TIME, self._record_time.started, after_stride)
        for _ in range(0, len(batch.numbers), STRIDE):
            self._process(islice(records, STRIDE))
            after_stride()
        # As in Flink, a timer that is set for the past waits for the next watermark.
        if watermark > self._time.watermark_before:
            self._record_time.watermark = watermark
            self._fire(TimeDomain.EVENT_TIME, watermark, after_stride)

    def _process_by_key(self, records: Iterable[Record], after_stride: Callable[[], None]) -> None:
        """Process a key and fire all its timers before the next key begins, for BATCH mode."""
        record_time = self._record_time
        for _, of_key in groupby(records, key=itemgetter(0)):
            self._process(of_key)
            record_time.watermark = MAX_WATERMARK
            self._fire(TimeDomain.EVENT_TIME, MAX_WATERMARK, after_stride)
            self._fire(TimeDomain.PROCESSING_TIME, MAX_WATERMARK, after_stride)
            record_time.watermark = MIN_WATERMARK
            after_stride()

    def _process(self, records: Iterable[Record]) -> None:
        states, record_time = self._states, self._record_time
        context, out = self._context, self._out
        value = results = None
        emitted = 0
        try:
            for states.current, record_time.timestamp, value, process in records:
                results = process(value, context)
                if results is not None:
                    for result in results:
                        out(result)
                        emitted += 1
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, not_iterable(error, results))
        self._counts.emitted += emitted

    def _fire(self, domain: TimeDomain, until: int, after_stride: Callable[[], None]) -> None:
        # A CoProcessFunction without keys may run on keyed streams; it has no on_timer().
        on_timer = getattr(self._node.function, "on_timer", lambda time, context: None)
        context, out, record_time = self._context, self._out, self._record_time
        context.domain = domain
        is_event_time = domain is TimeDomain.EVENT_TIME
        time, results, emitted = 0, None, 0
        try:
            for count, (time, _) in enumerate(self._timers.due(domain, until), 1):
                record_time.timestamp = time
                results = on_timer(time, context)
                if results is not None:
                    for result in results:
                        # As in Flink, results of a processing-time timer have no event time.
                        record_time.timestamp = time if is_event_time else NO_TIMESTAMP
                        out(result)
                        emitted += 1
                        record_time.timestamp = time
                if count % STRIDE == 0:
                    after_stride()
        except (Exception, SystemExit) as error:
            fail(self._node.name, MethodCall(f"on_timer({time})"), not_iterable(error, results))
        self._counts.emitted += emitted
        record_time.timestamp = NO_TIMESTAMP

    def _run_steps(self, batch: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Run an operator without timers."""
        is_reduce = self._node.kind is OperatorKind.REDUCE
        steps = (
            two_steps(self._node, self._out, self._context)
            if self._node.kind.has_two_inputs
            else (
                self._reduce()
                if is_reduce
                else function_step(self._node, self._node.name, self._out),
            )
        )
        calls = map(steps.__getitem__, batch.inputs) if len(steps) > 1 else repeat(steps[0])
        records = zip(batch.numbers, batch.timestamps(), batch.values, calls, strict=False)
        states, record_time = self._states, self._record_time
        for _ in range(0, len(batch.numbers), STRIDE):
            for states.current, record_time.timestamp, value, push in islice(records, STRIDE):
                push(value)
            after_stride()

    def _reducing_state(self) -> ReducingState[Any]:
        reduce = callable_of(self._node.function, ReduceFunction)
        descriptor = ReducingStateDescriptor(REDUCE_STATE, reduce, self._node.output_type)
        return self._states.get_reducing_state(descriptor)

    def _reduce(self) -> Push:
        """Return a step that emits the reduced value with every record."""
        name, out, state = self._node.name, self._out, self._reducing_state()

        def push(value: Any) -> None:
            try:
                state.add(value)
                result = state.get()
            except (Exception, SystemExit) as error:
                fail(name, value, error)
            out(result)

        return push

    def _reduce_once_per_key(self, batch: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Emit the reduced value of each key once, for BATCH mode."""
        state, states, out = self._reducing_state(), self._states, self._out
        records = zip(batch.numbers, batch.values, strict=True)
        value: Any = None
        try:
            for count, (states.current, of_key) in enumerate(groupby(records, key=itemgetter(0))):
                for _, value in of_key:
                    state.add(value)
                out(state.get())
                if count % STRIDE == 0:
                    after_stride()
        except (Exception, SystemExit) as error:
            fail(self._node.name, value, error)
