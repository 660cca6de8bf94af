"""A windowed step whose micro-batches a test runs by hand: records, a watermark, crashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common.event_time import MIN_WATERMARK, NO_TIMESTAMP
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.window.operation import WindowOperation
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.refs import StagedName, StateLocation, StateRef
from penstock.state.key_groups import KeyGroupRange, key_group, routed_key
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.task.messages import NextTimers
from penstock.task.operators.contexts import SubtaskInfo, TaskRuntimeContext
from penstock.task.time.timer_service import InternalTimerService, RecordTime
from penstock.task.window.grouped import grouped
from penstock.task.window.operator import WindowOperator, WindowOperatorContext

PLACE = StateLocation(Path("/nowhere"), Path("/nowhere"))
FACTS = SubtaskInfo("window", 0, 1, 128, 0, {})


@dataclass(frozen=True)
class Event:
    """A record with its key and time."""

    key: Any
    time: int
    value: Any


@dataclass
class Out:
    """A result with its event time."""

    time: int
    value: Any


class Windows:
    """One subtask of a windowed step."""

    def __init__(self, operation: WindowOperation, group: bool = True) -> None:
        self._operation = operation
        self._group = group
        self._backend = MemoryBackend("window")
        self._ref = StateRef(0)
        self._first = NextTimers()
        self._states = self._fresh()
        self.watermark = MIN_WATERMARK
        self.now = 0
        self.was_grouped = False

    def crash(self) -> None:
        """Lose all that is not in the state."""
        self._states = self._fresh()

    def batch(
        self, events: Sequence[Event], watermark: int | None = None, publish: bool = True
    ) -> list[Out]:
        """Run a micro-batch that ends with a watermark; return the results."""
        states = self._states
        codec = states.codec
        keys = list(dict.fromkeys(codec.encode(event.key) for event in events))
        routed = [routed_key(key, key_group(key, 128)) for key in keys]
        store = self._backend.open(PLACE, self._ref)
        states.bind(store, list(routed))
        numbers = [keys.index(codec.encode(event.key)) for event in events]
        out: list[Out] = []
        record_time = _Stopped(self.watermark, self.now)
        timers = InternalTimerService(states, self._first, KeyGroupRange(0, 128), record_time)
        parts = WindowOperatorContext(
            name="window",
            operation=self._operation,
            states=states,
            timers=timers,
            runtime_context=TaskRuntimeContext(FACTS, states),
            out=lambda value: out.append(Out(record_time.timestamp, value)),
            has_late_output=self._operation.late_tag is not None,
        )
        operator = WindowOperator(parts)
        for time, namespace in timers.due(TimeDomain.PROCESSING_TIME, self.now):
            operator.on_processing_time(time, namespace)
        times, values = [e.time for e in events], [e.value for e in events]
        group = grouped(parts, operator) if self._group else None
        self.was_grouped = group is not None and group.run(numbers, times, values)
        if not self.was_grouped:
            for states.current, record_time.timestamp, value in zip(
                numbers, times, values, strict=True
            ):
                operator.process(value)
        record_time.timestamp = NO_TIMESTAMP
        if watermark is not None:
            record_time.watermark = watermark
            for time, namespace in timers.due(TimeDomain.EVENT_TIME, watermark):
                operator.on_event_time(time, namespace)
        first = timers.first()
        delta = states.take_delta()
        states.release()
        store.close()
        if publish:
            version = self._ref.version + 1
            staged = self._backend.stage(PLACE, delta, StagedName("a", version, 0, 0, 0), version)
            self._ref = self._backend.publish(self._ref, version, staged)
            self._first = first
            self.watermark = record_time.watermark
        else:
            self._states = self._fresh()
        return out

    def entries(self) -> int:
        """Return how many entries of windows, keys and timers are stored."""
        with self._backend.open(PLACE, self._ref) as store:
            return len([key for key, _ in store.scan_between(b"\0\1", None)])

    def _fresh(self) -> KeyedStates:
        return KeyedStates("window", KeyCodec(step="window"))


class _Stopped(RecordTime):
    """A clock of processing time that stands still."""

    def now(self) -> int:
        return self.started


def operation_of(stream: Any) -> WindowOperation:
    """Return the operation of the step that a windowed stream has become."""
    operation = stream._transformation.function
    assert isinstance(operation, WindowOperation)
    return operation


def split(outs: Iterable[Out]) -> tuple[list[Any], list[Any]]:
    """Return the results, and what went to side outputs."""
    main, side = [], []
    for out in outs:
        value = out.value
        if isinstance(value, tuple) and value and isinstance(value[0], OutputTag):
            side.append(value[1])
        else:
            main.append(value)
    return main, side
