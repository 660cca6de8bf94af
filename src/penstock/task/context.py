"""What functions see of the task they run in."""

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
from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    RawState,
    RawStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.errors import InvalidJobError, StateDeclaredTwiceError
from penstock.state.broadcast_state import OperatorBroadcastState, ReadOnlyBroadcastView
from penstock.state.keyed import KeyedStates
from penstock.state.operator_state import OperatorStates
from penstock.task.moment import Moment


@dataclass(frozen=True, slots=True)
class SubtaskFacts:
    """Where a function runs."""

    task_name: str
    index: int
    parallelism: int
    max_parallelism: int
    attempt_number: int
    parameters: Mapping[str, str]


class TaskRuntimeContext(RuntimeContext):
    """The runtime context of one operator in one subtask."""

    def __init__(self, facts: SubtaskFacts, states: KeyedStates | None) -> None:
        self._facts = facts
        self._states = states
        self._metrics = MetricGroup()

    def get_task_name(self) -> str:
        """Return the operator's name."""
        return self._facts.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the operator's parallelism."""
        return self._facts.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups."""
        return self._facts.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return this instance's index."""
        return self._facts.index

    def get_attempt_number(self) -> int:
        """Return how often this task was tried before."""
        return self._facts.attempt_number

    def get_task_name_with_subtasks(self) -> str:
        """Return name, index and parallelism."""
        facts = self._facts
        place = f"{facts.index + 1}/{facts.parallelism}"
        return f"{facts.task_name} ({place})#{facts.attempt_number}"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a setting of the job's configuration."""
        return self._facts.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the operator's metrics."""
        return self._metrics

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return one value per key."""
        return self._keyed().get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list per key."""
        return self._keyed().get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return a map per key."""
        return self._keyed().get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return a folded value per key."""
        return self._keyed().get_reducing_state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return an accumulator per key."""
        return self._keyed().get_aggregating_state(state_descriptor)

    def get_raw_state(self, state_descriptor: RawStateDescriptor) -> RawState:
        """Return bytes per key."""
        return self._keyed().get_raw_state(state_descriptor)

    def _keyed(self) -> KeyedStates:
        if self._states is None:
            message = (
                f"step {self._facts.task_name!r} asks for keyed state but its stream has no key; "
                "put key_by() before it"
            )
            raise InvalidJobError(message)
        return self._states


class InitializationContext(FunctionInitializationContext):
    """The operator state a new instance of a function starts from."""

    def __init__(self, states: OperatorStates, restored: bool) -> None:
        self._states = states
        self._restored = restored

    def is_restored(self) -> bool:
        """Tell whether there is an earlier version, or the job was restored."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStates:
        """Return the store of this subtask's operator state."""
        return self._states


class SnapshotContext(FunctionSnapshotContext):
    """What a function is told at the end of a micro-batch."""

    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        """Return the first checkpoint that this version can be part of."""
        return self._checkpoint_id


class RecordContext(ProcessFunction.Context, CoProcessFunction.Context):
    """What a process function without keys sees of the current record."""

    def __init__(self, moment: Moment, service: TimerService) -> None:
        self._moment = moment
        self._service = service

    def timestamp(self) -> int:
        """Return the record's event time."""
        return self._moment.timestamp

    def get_current_key(self) -> NoReturn:
        """Refuse: a `KeyedCoProcessFunction` may run on streams without keys, as in PyFlink."""
        message = "there is no current key: the stream has none; put key_by() before the step"
        raise InvalidJobError(message)

    def timer_service(self) -> TimerService:
        """Return the time."""
        return self._service


class KeyedRecordContext(
    KeyedProcessFunction.OnTimerContext,
    KeyedCoProcessFunction.OnTimerContext,
    CoProcessFunction.Context,
):
    """What a keyed process function sees of the current record, or of a timer that fires."""

    def __init__(self, states: KeyedStates, moment: Moment, service: TimerService) -> None:
        self._states = states
        self._moment = moment
        self._service = service
        self.domain = TimeDomain.EVENT_TIME
        """Of the timer that fires."""

    def get_current_key(self) -> Any:
        """Return the current record's key."""
        return self._states.current_key()

    def timestamp(self) -> int:
        """Return the record's event time, or that of the timer."""
        return self._moment.timestamp

    def timer_service(self) -> TimerService:
        """Return the time, and the key's timers."""
        return self._service

    def time_domain(self) -> TimeDomain:
        """Return which time the timer went by."""
        return self.domain


class BroadcastStates:
    """The broadcast states of one function, as its steps were told of them."""

    def __init__(
        self, step: str, states: OperatorStates, descriptors: Sequence[MapStateDescriptor]
    ) -> None:
        self._step = step
        found = [states.get_broadcast_state(d) for d in descriptors]
        self._states = {
            d.name: (d, state, ReadOnlyBroadcastView(state))
            for d, state in zip(descriptors, found, strict=True)
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
                f"step {self._step!r} asks for broadcast state {name or descriptor!r}, and "
                f"broadcast() was given {known}: give it all descriptors"
            )
            raise InvalidJobError(message)
        given = found[0]
        if descriptor is not given and descriptor.type_info != given.type_info:
            raise StateDeclaredTwiceError(
                self._step, given.name, repr(given.type_info), repr(descriptor.type_info)
            )
        return found


class _SideContext(BaseBroadcastProcessFunction.BaseContext):
    def __init__(self, states: BroadcastStates, moment: Moment, service: TimerService) -> None:
        self._broadcast = states
        self._moment = moment
        self._service = service

    def timestamp(self) -> int:
        """Return the record's event time."""
        return self._moment.timestamp

    def current_processing_time(self) -> int:
        """Return the time of the machine."""
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        """Return the watermark of the step."""
        return self._service.current_watermark()


class BroadcastSideContext(
    _SideContext, BroadcastProcessFunction.Context, KeyedBroadcastProcessFunction.Context
):
    """What the broadcast side of a function sees."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """Return a state to read and change."""
        return self._broadcast.writable(state_descriptor)


class ElementSideContext(_SideContext, BroadcastProcessFunction.ReadOnlyContext):
    """What the other side sees where it has no keys."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastView:
        """Return a state to read."""
        return self._broadcast.read_only(state_descriptor)


class KeyedElementSideContext(_SideContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """What the keyed side sees of the current record, or of a timer that fires."""

    def __init__(
        self,
        states: BroadcastStates,
        keyed: KeyedStates,
        moment: Moment,
        service: TimerService,
    ) -> None:
        super().__init__(states, moment, service)
        self._keyed = keyed
        self.domain = TimeDomain.EVENT_TIME
        """Of the timer that fires."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastView:
        """Return a state to read."""
        return self._broadcast.read_only(state_descriptor)

    def get_current_key(self) -> Any:
        """Return the current record's key."""
        return self._keyed.current_key()

    def timer_service(self) -> TimerService:
        """Return the time, and the key's timers."""
        return self._service

    def time_domain(self) -> TimeDomain:
        """Return which time the timer went by."""
        return self.domain
