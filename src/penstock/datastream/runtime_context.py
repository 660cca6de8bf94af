"""The base class of functions and their runtime context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

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

__all__ = ["Function", "KeyedStateStore", "RuntimeContext"]


class KeyedStateStore(ABC):
    """Access to the keyed state of an operator."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return one value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return a map per key, each entry stored on its own."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return a value per key, combined with each value that is added."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Return an accumulator per key."""

    @abstractmethod
    def get_raw_state(self, state_descriptor: RawStateDescriptor) -> RawState:
        """Return bytes per key, stored unchanged."""


class RuntimeContext(KeyedStateStore):
    """Information about the subtask that a function runs in, passed to `open`."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the operator's name."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the operator's parallelism."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return this instance's index, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the number of earlier attempts at this task."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name with index and parallelism, as in `Map (1/4)#0`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a setting of the job's configuration."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the operator's metrics; counters are exact, see `MetricGroup`."""


class Function(ABC):  # noqa: B024 - both methods are optional to override
    """The root of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027
        """Initialise this instance; called before its first record in a worker."""

    def close(self) -> None:  # noqa: B027
        """Release resources; called at end of input or when the instance is discarded."""
