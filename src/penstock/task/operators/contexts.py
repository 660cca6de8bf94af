"""What functions see of the task they run in."""
# ruff: noqa: D102 - the abstract contexts document the methods

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.datastream.functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
)
from penstock.datastream.metrics import MetricGroup
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.errors import InvalidJobError, StateDeclaredTwiceError
from penstock.state.keyed.states import KeyedStates
from penstock.state.operator.broadcast_state import OperatorBroadcastState, ReadOnlyBroadcastView
from penstock.state.operator.states import OperatorStates
from penstock.task.time.timer_service import RecordTime


@dataclass(frozen=True, slots=True)
class SubtaskInfo:
    """The subtask that a function runs in."""

    task_name: str
    index: int
    parallelism: int
    max_parallelism: int
    attempt_number: int
    parameters: Mapping[str, str]


def _state_getter(method: str) -> Any:
    def get(self: Any, state_descriptor: Any) -> Any:
        return self._get_state(method, state_descriptor)

    return get


class StateGetters:
    """The methods of a `KeyedStateStore`: each calls `_get_state` with its own name."""

    get_state = _state_getter("get_state")
    get_list_state = _state_getter("get_list_state")
    get_map_state = _state_getter("get_map_state")
    get_reducing_state = _state_getter("get_reducing_state")
    get_aggregating_state = _state_getter("get_aggregating_state")
    get_raw_state = _state_getter("get_raw_state")


class TaskRuntimeContext(StateGetters, RuntimeContext):
    """The runtime context of one operator in one subtask."""

    def __init__(self, info: SubtaskInfo, states: KeyedStates | None) -> None:
        self._info = info
        self._states = states
        self._metrics = MetricGroup()

    def get_task_name(self) -> str:
        return self._info.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._info.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._info.index

    def get_attempt_number(self) -> int:
        return self._info.attempt_number

    def get_task_name_with_subtasks(self) -> str:
        info = self._info
        subtask = f"{info.index + 1}/{info.parallelism}"
        return f"{info.task_name} ({subtask})#{info.attempt_number}"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._info.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def _get_state(self, method: str, descriptor: Any) -> Any:
        if self._states is None:
            message = (
                f"step {self._info.task_name!r} asks for keyed state but its stream has no key; "
                "put key_by() before it"
            )
            raise InvalidJobError(message)
        return getattr(self._states, method)(descriptor)


class InitializationContext(FunctionInitializationContext):
    """The operator state that a new instance of a function starts from."""

    def __init__(self, states: OperatorStates, restored: bool) -> None:
        self._states = states
        self._restored = restored

    def is_restored(self) -> bool:
        """Return whether there is an earlier version, or the job was restored."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStates:
        return self._states


class SnapshotContext(FunctionSnapshotContext):
    """The checkpoint that a function's snapshot can be part of."""

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        """Return the first checkpoint that can include this snapshot."""
        return self._checkpoint_id


class ClockContext:
    """The clocks of a step; a mixin for contexts."""

    _service: TimerService

    def current_processing_time(self) -> int:
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        return self._service.current_watermark()


class _TimeContext:
    """The timestamp of the current record or timer."""

    def __init__(self, record_time: RecordTime, service: TimerService) -> None:
        self._record_time = record_time
        self._service = service

    def timestamp(self) -> int:
        return self._record_time.timestamp


class _KeyContext(_TimeContext):
    """The key of the current record, or of the timer that fires."""

    _states: KeyedStates
    domain = TimeDomain.EVENT_TIME
    """The time domain of the timer that fires."""

    def get_current_key(self) -> Any:
        return self._states.current_key()

    def timer_service(self) -> TimerService:
        return self._service

    def time_domain(self) -> TimeDomain:
        return self.domain


class RecordContext(_TimeContext, ProcessFunction.Context, CoProcessFunction.Context):
    """The context of process functions without keys."""

    def get_current_key(self) -> NoReturn:
        """Refuse: a `KeyedCoProcessFunction` may run on streams without keys, as in PyFlink."""
        message = "there is no current key: the stream has none; put key_by() before the step"
        raise InvalidJobError(message)

    def timer_service(self) -> TimerService:
        return self._service


class KeyedRecordContext(
    _KeyContext,
    KeyedProcessFunction.OnTimerContext,
    KeyedCoProcessFunction.OnTimerContext,
    CoProcessFunction.Context,
):
    """The context of keyed process functions."""

    def __init__(self, states: KeyedStates, record_time: RecordTime, service: TimerService) -> None:
        super().__init__(record_time, service)
        self._states = states


class BroadcastStates:
    """The broadcast states of one function."""

    def __init__(
        self, step: str, states: OperatorStates, descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        self._step = step
        self._states = {
            d.name: (d, state, ReadOnlyBroadcastView(state))
            for d in descriptors
            for state in (states.get_broadcast_state(d),)
        }

    def writable(self, descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """Return a state as the broadcast side sees it."""
        return self._find(descriptor)[1]

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastView:
        """Return a state as the other side sees it."""
        return self._find(descriptor)[2]

    def _find(
        self, descriptor: MapStateDescriptor
    ) -> tuple[MapStateDescriptor, OperatorBroadcastState, ReadOnlyBroadcastView]:
        name = getattr(descriptor, "name", None)
        found = self._states.get(name) if name is not None else None
        if found is None:
            known = ", ".join(map(repr, self._states))
            message = (
                f"step {self._step!r} asks for broadcast state {name or descriptor!r}, but "
                f"broadcast() has only {known}: pass all descriptors to it"
            )
            raise InvalidJobError(message)
        declared = found[0]
        if descriptor is not declared and descriptor.type_info != declared.type_info:
            raise StateDeclaredTwiceError(
                self._step, declared.name, repr(declared.type_info), repr(descriptor.type_info)
            )
        return found


class _SideContext(_TimeContext, ClockContext, BaseBroadcastProcessFunction.BaseContext):
    def __init__(
        self, states: BroadcastStates, record_time: RecordTime, service: TimerService
    ) -> None:
        super().__init__(record_time, service)
        self._broadcast = states


class BroadcastSideContext(
    _SideContext, BroadcastProcessFunction.Context, KeyedBroadcastProcessFunction.Context
):
    """The context of the broadcast side of a function."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        return self._broadcast.writable(state_descriptor)


class ElementSideContext(_SideContext, BroadcastProcessFunction.ReadOnlyContext):
    """The context of the other side of a function, without keys."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastView:
        return self._broadcast.read_only(state_descriptor)


class KeyedElementSideContext(
    ElementSideContext, _KeyContext, KeyedBroadcastProcessFunction.OnTimerContext
):
    """The context of the keyed side of a function."""

    def __init__(
        self,
        broadcast: BroadcastStates,
        states: KeyedStates,
        record_time: RecordTime,
        service: TimerService,
    ) -> None:
        super().__init__(broadcast, record_time, service)
        self._states = states
