"""Windowed streams, keyed and not keyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from penstock.common.typeinfo import TypeInformation, Types
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    Function,
    NullByteKeySelector,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.datastream.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    Evictor,
    MergingWindowAssigner,
    Trigger,
    WindowAssigner,
)
from penstock.datastream.window.operation import WINDOW_CONTENTS, WindowOperation
from penstock.errors import InvalidJobError
from penstock.graph.transformation import OperatorKind

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream, KeyedStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """Return the assigner of count windows."""
    if slide == 0:
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)


class _Windows:
    """The common part of windows with and without keys."""

    _kind: str
    _apply: type[Function]
    _process: type[Function]
    _is_keyed = True

    def __init__(
        self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        _check("window assigner", window_assigner, WindowAssigner)
        self._stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._allowed_lateness = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the declared type of the records."""
        return self._stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set the trigger, in place of the assigner's default."""
        _check("trigger", trigger, Trigger)
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set an evictor; windows then keep all their records. Not in PyFlink."""
        _check("evictor", evictor, Evictor)
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Set how long after its end an event-time window still accepts records."""
        if not isinstance(time_ms, int) or time_ms < 0:
            message = f"allowed_lateness() needs milliseconds, 0 or more; got {time_ms!r}"
            raise InvalidJobError(message)
        self._allowed_lateness = time_ms
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that are too late for their windows to a side output."""
        _check("output tag", output_tag, OutputTag)
        self._late_tag = output_tag
        return self

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction[Any],
        window_function: Any = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Reduce the records of a window incrementally; emit the result, or the function's."""
        if not isinstance(reduce_function, ReduceFunction) and not callable(reduce_function):
            message = f"reduce() needs a ReduceFunction or a callable; got {reduce_function!r}"
            raise InvalidJobError(message)
        input_type = self._stream._type
        if window_function is None and output_type is None:
            output_type = input_type
        contents = ReducingStateDescriptor(WINDOW_CONTENTS, reduce_function, input_type)
        return self._result(contents, reduce_function, window_function, output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: TypeInformation | list[TypeInformation] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Aggregate the records of a window incrementally; emit the result, or the function's."""
        _check("aggregate function", aggregate_function, AggregateFunction)
        kept = Types.ROW(accumulator_type) if isinstance(accumulator_type, list) else None
        contents = AggregatingStateDescriptor(
            WINDOW_CONTENTS,
            aggregate_function,
            kept or accumulator_type,  # type: ignore[arg-type]
        )
        return self._result(contents, aggregate_function, window_function, output_type)

    def apply(self, window_function: Any, output_type: TypeInformation | None = None) -> DataStream:
        """Keep all records of a window, and emit the function's results."""
        _check("window function", window_function, self._apply)
        return self._result(self._all_records(), None, window_function, output_type)

    def process(
        self, process_window_function: Any, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Keep all records of a window, and emit the function's results."""
        _check("window function", process_window_function, self._process)
        return self._result(self._all_records(), None, process_window_function, output_type)

    def _all_records(self) -> ListStateDescriptor:
        return ListStateDescriptor(WINDOW_CONTENTS, self._stream._type)

    def _result(
        self,
        contents: StateDescriptor,
        aggregating_function: Any,
        window_function: Any,
        output_type: TypeInformation | None,
    ) -> DataStream:
        if window_function is not None:
            _check("window function", window_function, self._apply, self._process)
        trigger = self._trigger
        if trigger is None:
            trigger = self._assigner.get_default_trigger(self.get_execution_environment())
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            message = (
                f"{type(trigger).__name__} cannot be used with {type(self._assigner).__name__}, "
                "whose windows are merged: its can_merge() is false"
            )
            raise InvalidJobError(message)
        operation = WindowOperation(
            assigner=self._assigner,
            trigger=trigger,
            evictor=self._evictor,
            allowed_lateness=self._allowed_lateness,
            late_tag=self._late_tag,
            contents=contents,
            aggregating_function=aggregating_function
            if isinstance(aggregating_function, Function)
            else None,
            window_function=window_function,
            is_keyed=self._is_keyed,
        )
        name = type(self._assigner).__name__
        result = self._stream._then(OperatorKind.WINDOW, name, operation, output_type)
        functions = [
            type(f).__name__ for f in (aggregating_function, window_function) if f is not None
        ]
        parts = [repr(self._assigner), type(trigger).__name__, *functions]
        return result.set_description(f"{self._kind}({', '.join(parts)})")


class WindowedStream(_Windows):
    """The windows of each key."""

    _kind = "Window"
    _apply = WindowFunction
    _process = ProcessWindowFunction


class AllWindowedStream(_Windows):
    """Windows over all records of a stream, in one subtask."""

    _kind = "AllWindow"
    _apply = AllWindowFunction
    _process = ProcessAllWindowFunction
    _is_keyed = False

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(NullByteKeySelector(), Types.BYTE()), window_assigner)

    def _result(
        self,
        contents: StateDescriptor,
        aggregating_function: Any,
        window_function: Any,
        output_type: TypeInformation | None,
    ) -> DataStream:
        result = super()._result(contents, aggregating_function, window_function, output_type)
        return result.set_parallelism(1).set_max_parallelism(1)


def _check(what: str, value: Any, *kinds: type) -> None:
    if isinstance(value, kinds):
        return
    names = " or ".join(kind.__name__ for kind in kinds)
    if isinstance(value, type) and issubclass(value, kinds):
        message = f"the {what} must be an instance; got the class: did you mean {value.__name__}()?"
    else:
        message = f"the {what} must be a {names}; got {value!r}"
    raise InvalidJobError(message)
