"""Window assigners: which windows a record belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

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
    """Puts each record into windows, none, one or several."""

    class WindowAssignerContext(ABC):
        """What an assigner may know beside the record."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Return this machine's time in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Return the step's context, with the state of the record's key."""

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
        """Return what writes the windows."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Tell whether the windows lie in event time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may become one."""

    class MergeCallback(ABC, Generic[W2]):
        """What `merge_windows` tells its findings."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """Let these windows become that one."""

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]
    ) -> None:
        """Tell which of the windows have to become one."""


class EventTimeAssigner(WindowAssigner[Any, TimeWindow]):
    """What assigners of windows in event time share."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when the watermark passes the end."""
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return what writes time windows."""
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        """Tell that they lie in event time."""
        return True


class ProcessingTimeAssigner(WindowAssigner[Any, TimeWindow]):
    """What assigners of windows in the machine's time share."""

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when the machine's time passes the end."""
        return ProcessingTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        """Return what writes time windows."""
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        """Tell that they do not lie in event time."""
        return False


class _Tumbling(WindowAssigner[Any, TimeWindow]):
    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            rule = "abs(offset) < size"
            _refuse(self, rule, size=size, offset=offset)
        self._size = size
        self._offset = offset

    def _windows(self, time: int) -> list[TimeWindow]:
        start = TimeWindow.get_window_start_with_offset(time, self._offset, self._size)
        return [TimeWindow(start, start + self._size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(_Tumbling, EventTimeAssigner):
    """Windows of one size in event time, one behind the other."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingEventTimeWindows:
        """Return windows of this size that begin so much after the full multiples of it."""
        return TumblingEventTimeWindows(size.to_milliseconds(), _millis(offset))

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        check_timestamp(timestamp)
        return self._windows(timestamp)


class TumblingProcessingTimeWindows(_Tumbling, ProcessingTimeAssigner):
    """Windows of one size in the machine's time, one behind the other."""

    @staticmethod
    def of(size: Time, offset: Time | None = None) -> TumblingProcessingTimeWindows:
        """Return windows of this size that begin so much after the full multiples of it."""
        return TumblingProcessingTimeWindows(size.to_milliseconds(), _millis(offset))

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return self._windows(context.get_current_processing_time())


class _Sliding(WindowAssigner[Any, TimeWindow]):
    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            rule = "abs(offset) < slide and size > 0"
            _refuse(self, rule, size=size, slide=slide, offset=offset)
        self._size = size
        self._slide = slide
        self._offset = offset

    def _windows(self, time: int) -> list[TimeWindow]:
        last = TimeWindow.get_window_start_with_offset(time, self._offset, self._slide)
        starts = range(last, time - self._size, -self._slide)
        return [TimeWindow(start, start + self._size) for start in starts]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(_Sliding, EventTimeAssigner):
    """Windows of one size in event time, a new one at every slide."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingEventTimeWindows:
        """Return windows that begin so much after the full multiples of the slide."""
        millis = size.to_milliseconds(), slide.to_milliseconds(), _millis(offset)
        return SlidingEventTimeWindows(*millis)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        check_timestamp(timestamp)
        return self._windows(timestamp)


class SlidingProcessingTimeWindows(_Sliding, ProcessingTimeAssigner):
    """Windows of one size in the machine's time, a new one at every slide."""

    @staticmethod
    def of(size: Time, slide: Time, offset: Time | None = None) -> SlidingProcessingTimeWindows:
        """Return windows that begin so much after the full multiples of the slide."""
        millis = size.to_milliseconds(), slide.to_milliseconds(), _millis(offset)
        return SlidingProcessingTimeWindows(*millis)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        return self._windows(context.get_current_processing_time())


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """Puts all records into one window, which ends when its trigger says so."""

    @staticmethod
    def create() -> GlobalWindows:
        """Return the assigner."""
        return GlobalWindows()

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Never fire: a program sets another trigger."""
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
            _refuse(self, "window_size > 0", window_size=window_size)
        self._window_size = window_size
        self._count_descriptor = ValueStateDescriptor(state, Types.LONG())

    def _count(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return how many records of the key came before this one, and count it."""
        state = context.get_runtime_context().get_state(self._count_descriptor)
        count: int = state.value() or 0
        state.update(count + 1)
        return count

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fire when the window is full."""
        return CountTrigger(self._window_size)

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        """Return what writes count windows."""
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """Tell that they lie in no time."""
        return False


class CountTumblingWindowAssigner(_CountAssigner):
    """Windows of so many records of a key, one behind the other."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, "tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Return such an assigner."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        return [CountWindow(self._count(context) // self._window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._window_size})"


class CountSlidingWindowAssigner(_CountAssigner):
    """Windows of so many records of a key, a new one at every so many."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size, "slide-count-assigner")
        if window_slide < 1:
            _refuse(self, "window_slide > 0", window_slide=window_slide)
        self._window_slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Return such an assigner."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(  # noqa: D102
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        count, slide = self._count(context), self._window_slide
        first = max(0, -(-(count - self._window_size + 1) // slide))
        return [CountWindow(number) for number in range(count // slide, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._window_size}, {self._window_slide})"


def check_timestamp(timestamp: int) -> None:
    """Refuse a record without a time, which no window in event time can take."""
    if timestamp == MIN_LONG_VALUE:
        message = (
            "the record has no timestamp, which windows in event time go by: put "
            "assign_timestamps_and_watermarks() before them"
        )
        raise InvalidJobError(message)


def refuse_gap(assigner: object, gap: int) -> None:
    """Refuse a session gap that is none."""
    if gap <= 0:
        _refuse(assigner, "0 < gap", gap=gap)


def _refuse(assigner: object, rule: str, **given: int) -> None:
    shown = ", ".join(f"{name}={value}" for name, value in given.items())
    message = f"{type(assigner).__name__} must satisfy {rule}; got {shown}"
    raise InvalidJobError(message)


def _millis(time: Time | None) -> int:
    return 0 if time is None else time.to_milliseconds()
