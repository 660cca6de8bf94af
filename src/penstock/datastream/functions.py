"""The functions that a program implements.

Functions are shipped to tasks by value. `open` is called before the first record in a worker, and
again whenever another worker takes the subtask over: plain fields that are set while processing do
not survive a micro-batch. Keyed state does, and so does the operator state of a
`CheckpointedFunction`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.pyflink.missing_names import missing_name_getattr
from penstock.datastream.async_functions import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from penstock.datastream.runtime_context import Function, KeyedStateStore, RuntimeContext
from penstock.datastream.state import (
    BroadcastState,
    MapStateDescriptor,
    OperatorStateStore,
    ReadOnlyBroadcastState,
)
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.datastream.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "WindowFunction",
]

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
ACC = TypeVar("ACC")
KEY = TypeVar("KEY")


class MapFunction(Function, Generic[IN, OUT]):
    """Maps each record to one other record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the record that replaces `value`."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Maps each record to any number of records."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the records that replace `value`."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Maps each record of two connected streams to one other record.

    One instance gets both inputs, which share its fields and, on keyed streams, a key's state.
    """

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return what replaces a record of the first stream; None for nothing."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return what replaces a record of the second stream; None for nothing."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Maps each record of two connected streams to any number of records.

    One instance gets both inputs, which share its fields and, on keyed streams, a key's state.
    """

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield what replaces a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield what replaces a record of the second stream."""


class FilterFunction(Function, Generic[IN]):
    """Keeps the records for which it returns true."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Tell whether `value` is kept."""


class ReduceFunction(Function, Generic[IN]):
    """Combines two records of a type into one."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Return the combination of both."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds records to an accumulator and computes a result from it."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return an empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with `value` in it."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result of the accumulator."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return one accumulator for both."""


class KeySelector(Function, Generic[IN, KEY]):
    """Extracts the key of a record; it must return the same key for the same record."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Return the key."""


class NullByteKeySelector(KeySelector[Any, int]):
    """Gives every record the same key."""

    def get_key(self, value: Any) -> int:
        """Return 0 for every record."""
        return 0


class Partitioner(Function):
    """Chooses the subtask of the next step that gets a record."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the index of the subtask for a record of this key, from 0."""


class _RecordContext(ABC):
    @abstractmethod
    def timestamp(self) -> int:
        """Return the record's event time, the least 64-bit number if it has none."""

    @abstractmethod
    def timer_service(self) -> TimerService:
        """Return the service that tells the time and keeps timers."""


class _KeyedContext(_RecordContext):
    @abstractmethod
    def get_current_key(self) -> Any:
        """Return the record's key."""


class _TimerContext(ABC):
    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """Return whether the timer is an event-time or a processing-time timer."""


class _TimerCallback:
    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any] | None:
        """Return or yield the results of a timer of `timestamp`; the current key is the timer's.

        Called once per key and time, in the order of times: when the watermark has reached the
        time, or with the first micro-batch after processing time has reached it.
        """
        return None


class ProcessFunction(Function, Generic[IN, OUT]):
    """Processes the records of a stream without keys."""

    class Context(_RecordContext):
        """Information about the current record."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield the results of `value`."""


class KeyedProcessFunction(_TimerCallback, Function, Generic[KEY, IN, OUT]):
    """Processes the records of a keyed stream, with access to the key's state and timers."""

    class Context(_KeyedContext):
        """Information about the current record."""

    class OnTimerContext(Context, _TimerContext):
        """Information about a timer that fires."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield the results of `value`."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes the records of two connected streams."""

    class Context(_RecordContext):
        """Information about the current record."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the second stream."""


class KeyedCoProcessFunction(_TimerCallback, Function, Generic[KEY, IN1, IN2, OUT]):
    """Processes the records of two connected keyed streams.

    Both streams share a key's state: a record of the second stream finds there what a record of
    the first with the same key has written.
    """

    class Context(_KeyedContext):
        """Information about the current record."""

    class OnTimerContext(Context, _TimerContext):
        """Information about a timer that fires."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the second stream."""


class BaseBroadcastProcessFunction(Function):
    """Base of functions with a broadcast side.

    Every subtask gets all records of the broadcast side, in the same order, and keeps its results
    in broadcast state. These must be the same in all subtasks: after a restore with another
    parallelism, a subtask may get the copy of any other.
    """

    class BaseContext(ABC):
        """Information about the current record, whichever side it is of."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in milliseconds, which differs after a failure."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, the least 64-bit number as long as there is none."""

    class Context(BaseContext):
        """The context of the broadcast side, which may write broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return a broadcast state that was passed to `broadcast()`."""

    class ReadOnlyContext(BaseContext):
        """The context of the other side, which may only read broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return a broadcast state that was passed to `broadcast()`, for reading only."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Processes a stream without keys that is connected with a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of the broadcast side."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """The context of the other side."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the side that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a broadcast record; called in every subtask."""


class KeyedBroadcastProcessFunction(
    _TimerCallback, BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]
):
    """Processes a keyed stream that is connected with a broadcast stream.

    A broadcast record has no key, and so no keyed state.
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of the broadcast side."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, _KeyedContext):
        """The context of the keyed side."""

    class OnTimerContext(ReadOnlyContext, _TimerContext):
        """Information about a timer that fires."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a record with a key, next to the key's state."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield the results of a broadcast record; called in every subtask."""


class FunctionInitializationContext(ABC):
    """Gives a function access to its restored operator state."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Tell whether state is restored: from a checkpoint, or from an earlier micro-batch."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of this subtask's operator state."""


class FunctionSnapshotContext(ABC):
    """Information about the snapshot that a function's operator state becomes part of."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the first checkpoint that this snapshot can be part of, never a past one.

        Several micro-batches before a checkpoint get the same id. To act when a checkpoint is
        complete, collect work under its id, and process all ids up to it.
        """


class CheckpointedFunction(ABC):
    """A function with operator state: lists that belong to a subtask, not to a key.

    A mixin, as in `class Buffer(FlatMapFunction, CheckpointedFunction)`. The lists are part of
    every version of the job's state, so a buffer that `snapshot_state` writes to them survives a
    change of worker, a failure and a new parallelism.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the lists and fill fields from them.

        Called once per instance, before `open` and before any record: when a job starts or is
        restored, and whenever another worker takes the subtask over.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Write everything that has to survive to the lists.

        Called at the end of every micro-batch, not only for checkpoints. A retried task calls it
        again; it must change nothing outside the function.
        """


class CheckpointListener:
    """A function that is notified of completed and aborted checkpoints.

    A mixin. Notifications come late and, after a crash, may come twice or not at all; one for
    checkpoint n covers all checkpoints before n.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when a checkpoint is complete and durable."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Called when a checkpoint was aborted; the next complete one covers its records."""


if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
