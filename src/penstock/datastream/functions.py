"""User functions: what a program implements and penstock calls.

Every function is shipped to tasks by value. `open` is called before the first record a task
gives it, and again whenever another worker takes the subtask over: plain fields set while
processing do not survive a micro-batch, keyed state does, and so does what a
`CheckpointedFunction` puts into its operator state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.missing_names import asked_of
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
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the record that takes the place of `value`."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the records that take the place of `value`."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One record of either of two connected streams in, one record out.

    The same instance gets both, so they share its fields and, on keyed streams, a key's state.
    """

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return what takes the place of a record of the first stream; None for nothing."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return what takes the place of a record of the second stream; None for nothing."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One record of either of two connected streams in, any number out.

    The same instance gets both, so they share its fields and, on keyed streams, a key's state.
    """

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield what takes the place of a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield what takes the place of a record of the second stream."""


class FilterFunction(Function, Generic[IN]):
    """Keeps the records it answers true for."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Say whether `value` stays."""


class ReduceFunction(Function, Generic[IN]):
    """Folds two records of a kind into one."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Return the combination of both."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Folds records into an accumulator and reads a result from it."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return an empty accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with `value` in it."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result the accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return one accumulator for both."""


class KeySelector(Function, Generic[IN, KEY]):
    """Finds the key of a record; must give the same key for the same record."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Return the key."""


class NullByteKeySelector(KeySelector[Any, int]):
    """Gives every record the same key."""

    def get_key(self, value: Any) -> int:
        """Return 0 for all."""
        return 0


class Partitioner(Function):
    """Decides which subtask of the next step gets a record."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the number of the subtask for a record of this key, from 0."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """The most general function on a stream without keys."""

    class Context(ABC):
        """What is known about the current record."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield what follows from `value`."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """The most general function on a keyed stream, with access to the key's state."""

    class Context(ABC):
        """What is known about the current record."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the record's key."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(Context):
        """What is known about a timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element(self, value: IN, ctx: KeyedProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield what follows from `value`."""

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a timer of `timestamp`; its key is the current one.

        Called once per key and time, in the order of times: with the watermark that has come that
        far, or as soon as a micro-batch can start when the machine's time has.
        """
        return None


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """The most general function on two connected streams."""

    class Context(ABC):
        """What is known about the current record."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield what follows from a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: CoProcessFunction.Context) -> Iterable[OUT] | None:
        """Return or yield what follows from a record of the second stream."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """The most general function on two connected keyed streams.

    A key's state is one for both: what a record of the first stream leaves there, a record of
    the second with the same key finds.
    """

    class Context(ABC):
        """What is known about the current record."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the record's key."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(Context):
        """What is known about a timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a record of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a record of the second stream."""

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a timer of `timestamp`; its key is the current one.

        Called once per key and time, in the order of times: with the watermark that has come that
        far, or as soon as a micro-batch can start when the machine's time has.
        """
        return None


class BaseBroadcastProcessFunction(Function):
    """What functions with a broadcast side have in common.

    Every subtask gets all records of the broadcast side, in the same order, and keeps what it
    makes of them in broadcast state. It must make the same of them everywhere: which copy a
    subtask finds after a restore with another parallelism is open.
    """

    class BaseContext(ABC):
        """What is known about the current record, whichever side it is of."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the record's event time, the least 64-bit number if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return this machine's time in milliseconds, another one after a failure."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, the least 64-bit number as long as there is none."""

    class Context(BaseContext):
        """The broadcast side's: it may change broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """Return a broadcast state that was given to `broadcast()`."""

    class ReadOnlyContext(BaseContext):
        """The other side's: it may look at broadcast state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """Return a broadcast state that was given to `broadcast()`, to be read only."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """The function of a stream without keys that is connected with a broadcast one."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """What the broadcast side sees."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """What the other side sees."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a record of the side that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a broadcast record; called in every subtask."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """The function of a keyed stream that is connected with a broadcast one.

    A broadcast record has no key, and so no keyed state.
    """

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """What the broadcast side sees."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """What the keyed side sees."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the record's key."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return what tells the time and keeps timers."""

    class OnTimerContext(ReadOnlyContext):
        """What is known about a timer that fires."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return which time the timer went by."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a record with a key, next to the key's state."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a broadcast record; called in every subtask."""

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[OUT] | None:
        """Return or yield what follows from a timer of `timestamp`; its key is the current one.

        Called once per key and time, in the order of times: with the watermark that has come that
        far, or as soon as a micro-batch can start when the machine's time has.
        """
        return None


class FunctionInitializationContext(ABC):
    """What a function is given to find its operator state again."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Tell whether there is an earlier version: a checkpoint, or an earlier micro-batch."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of this subtask's operator state."""


class FunctionSnapshotContext(ABC):
    """What a function is told when its operator state is taken."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the first checkpoint that this version can be part of, never one that is past.

        Several micro-batches before a checkpoint get the same id. To do something when a
        checkpoint is complete, add to what is filed under its id, and act on all ids up to it.
        """


class CheckpointedFunction(ABC):
    """A function with operator state: lists of its own, beside any keyed state.

    Mixed into a function, as in `class Buffer(FlatMapFunction, CheckpointedFunction)`. What
    `snapshot_state` puts into the lists is part of every version of the job's state, so a
    buffer kept in `self` survives a change of worker, a failure and a new parallelism.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Ask for lists and fill fields from them.

        Called once per instance, before `open` and before any record: when a job starts or is
        restored, and whenever another worker takes the subtask over.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put what has to survive into the lists.

        Called at the end of every micro-batch, not only where a checkpoint is. A task that is
        tried again calls it again; it must change nothing outside the function.
        """


class CheckpointListener:
    """A function that wants to hear what became of a checkpoint.

    Mixed into a function. Notices come late and, after a crash, may come twice or not at all;
    a notice of checkpoint n says that all before n are settled too.
    """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Hear that a checkpoint is complete and durable."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Hear that a checkpoint was given up; the next complete one covers its records."""


if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
