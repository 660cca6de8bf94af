"""Window assigners: which windows a record belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, NoReturn, Self, TypeVar

from penstock.common.serializer import TypeSerializer
from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream.runtime_context import RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window.trigger import Trigger
from penstock.datastream.window.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
)
from penstock.datastream.window.windows import (
    MIN_LONG_VALUE,
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from penstock.errors import InvalidJobError

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "GlobalWindows",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

T = TypeVar("T")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns each record to no, one or several windows."""

    class WindowAssignerContext(ABC):
        """Gives an assigner the time and the step's context."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return the processing time in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the step's runtime context, with the state of the record's key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """Return the windows of a record."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Return the trigger to use where none is set."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Return the serializer of the windows."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Tell whether the windows are in event time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can be merged."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives the merges that `merge_windows` decides."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Merge windows into one."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Call back for each set of windows that has to be merged."""


class TimeWindowAssigner(WindowAssigner[Any, TimeWindow]):
    """Base of the assigners of time windows."""

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return the serializer of time windows."""
        return TimeWindowSerializer()

    @abstractmethod
    def _windows(self, element: Any, time: int) -> list[TimeWindow]:
        """Return the windows of a record at a time."""


class EventTimeAssigner(TimeWindowAssigner):
    """Base of the assigners of windows in event time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        if timestamp == MIN_LONG_VALUE:
            message = (
                "the record has no timestamp, which event-time windows need: call "
                "assign_timestamps_and_watermarks() before the window"
            )
            raise InvalidJobError(message)
        return self._windows(element, timestamp)

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when the watermark passes the end."""
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        """Return true."""
        return True


class ProcessingTimeAssigner(TimeWindowAssigner):
    """Base of the assigners of windows in processing time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return self._windows(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when processing time passes the end."""
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        """Return false."""
        return False


class _Tumbling(TimeWindowAssigner):
    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            refuse(self, "abs(offset) < size", size=size, offset=offset)
        self._size = size
        self._offset = offset

    @classmethod
    def of(cls, size: Time, offset: Time | None = None) -> Self:
        """Create windows of a size; they start at the multiples of it plus the offset."""
        return cls(size.to_milliseconds(), _millis(offset))

    def _windows(self, element: Any, time: int) -> list[TimeWindow]:
        start = TimeWindow.get_window_start_with_offset(time, self._offset, self._size)
        return [TimeWindow(start, start + self._size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(_Tumbling, EventTimeAssigner):
    """Adjacent windows of one size in event time."""


class TumblingProcessingTimeWindows(_Tumbling, ProcessingTimeAssigner):
    """Adjacent windows of one size in processing time."""


class _Sliding(TimeWindowAssigner):
    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            rule = "abs(offset) < slide and size > 0"
            refuse(self, rule, size=size, slide=slide, offset=offset)
        self._size = size
        self._slide = slide
        self._offset = offset

    @classmethod
    def of(cls, size: Time, slide: Time, offset: Time | None = None) -> Self:
        """Create windows of a size; they start at the multiples of the slide plus the offset."""
        return cls(size.to_milliseconds(), slide.to_milliseconds(), _millis(offset))

    def _windows(self, element: Any, time: int) -> list[TimeWindow]:
        last = TimeWindow.get_window_start_with_offset(time, self._offset, self._slide)
        starts = range(last, time - self._size, -self._slide)
        return [TimeWindow(start, start + self._size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(_Sliding, EventTimeAssigner):
    """Overlapping windows of one size in event time, one per slide."""


class SlidingProcessingTimeWindows(_Sliding, ProcessingTimeAssigner):
    """Overlapping windows of one size in processing time, one per slide."""


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """Assigns all records to one window, which fires when its trigger does."""

    @staticmethod
    def create() -> GlobalWindows:
        """Create the assigner."""
        return GlobalWindows()

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Never fire: a program has to set a trigger."""
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:  # noqa: D102
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:  # noqa: D102
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class _CountAssigner(WindowAssigner[Any, CountWindow]):
    def __init__(self, window_size: int, state: str) -> None:
        if window_size < 1:
            refuse(self, "window_size > 0", window_size=window_size)
        self._window_size = window_size
        self._count_descriptor = ValueStateDescriptor(state, Types.LONG())

    def _count(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return how many records of the key came before this one, and count this one."""
        state = context.get_runtime_context().get_state(self._count_descriptor)
        count: int = state.value() or 0
        state.update(count + 1)
        return count

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when the window is full."""
        return CountTrigger(self._window_size)

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return the serializer of count windows."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """Return false."""
        return False


class CountTumblingWindowAssigner(_CountAssigner):
    """Adjacent windows of a number of records of a key."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, "tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Create the assigner."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        return [CountWindow(self._count(context) // self._window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._window_size})"


class CountSlidingWindowAssigner(_CountAssigner):
    """Overlapping windows of a number of records of a key."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size, "slide-count-assigner")
        if window_slide < 1:
            refuse(self, "window_slide > 0", window_slide=window_slide)
        self._window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Create the assigner."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        count, slide = self._count(context), self._window_slide
        first = max(0, -(-(count - self._window_size + 1) // slide))
        return [CountWindow(number) for number in range(count // slide, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._window_size}, {self._window_slide})"


def refuse(assigner: object, rule: str, **values: int) -> NoReturn:
    """Reject the arguments of an assigner, naming the rule that they break."""
    shown = ", ".join(f"{name}={value}" for name, value in values.items())
    message = f"{type(assigner).__name__} must satisfy {rule}; got {shown}"
    raise InvalidJobError(message)


def _millis(time: Time | None) -> int:
    return 0 if time is None else time.to_milliseconds()
