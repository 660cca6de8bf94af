"""Data streams: the steps of a program. Building them runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, overload

from penstock.channel.batches import batch_schema_for
from penstock.common.execution_config import ExecutionConfig
from penstock.common.pyflink.missing_names import UnsupportedAttribute
from penstock.common.typeinfo import TypeInformation, Types, check_type
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.contracts.sink import Sink
from penstock.connectors.print_sink import PrintSink
from penstock.datastream.batch_functions import BatchFunction, KeyedBatchFunction
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.streams.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from penstock.datastream.streams.collecting import CloseableIterator
from penstock.datastream.streams.connected_streams import ConnectedStreams
from penstock.datastream.streams.projection import Projection, projected_type
from penstock.datastream.streams.rolling import Combine, RollingAggregate, add, greatest, least
from penstock.datastream.streams.step import DataStreamSink, Step, at_least_one
from penstock.datastream.streams.windowed_stream import (
    AllWindowedStream,
    WindowedStream,
    count_windows,
)
from penstock.datastream.window import WindowAssigner
from penstock.errors import InvalidJobError
from penstock.graph.transformation import (
    Exchange,
    OperatorKind,
    Partitioning,
    Transformation,
    Upstream,
    common_type,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AllWindowedStream",
    "CachedDataStream",
    "CloseableIterator",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]

Function = Any


class DataStream(Step):
    """A stream of records."""

    _map_kind = OperatorKind.MAP
    _flat_map_kind = OperatorKind.FLAT_MAP
    _filter_kind = OperatorKind.FILTER

    def get_name(self) -> str:
        """Return the step's name."""
        return self._transformation.name

    def get_type(self) -> TypeInformation:
        """Return the declared type of the records."""
        return self._type or Types.PICKLED_BYTE_ARRAY()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment the stream belongs to."""
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._env.get_config()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the max parallelism of this step, which is its number of key groups."""
        self._transformation.max_parallelism = at_least_one("max parallelism", max_parallelism)
        return self

    def force_non_parallel(self) -> Self:
        """Run this step in one subtask."""
        return self.set_parallelism(1)

    def start_new_chain(self) -> Self:
        """Start a new stage with this step."""
        self._transformation.start_new_chain = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted without effect: records are flushed with each micro-batch."""
        return self

    def map(
        self,
        func: Callable[[Any], Any] | MapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Map each record to one other."""
        _check(func, MapFunction, "map")
        return self._then(self._map_kind, "Map", func, output_type)

    def flat_map(
        self,
        func: Callable[[Any], Any] | FlatMapFunction[Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Map each record to any number of others."""
        _check(func, FlatMapFunction, "flat_map")
        return self._then(self._flat_map_kind, "FlatMap", func, output_type)

    def filter(self, func: Callable[[Any], bool] | FilterFunction[Any]) -> DataStream:
        """Keep the records for which the function returns true."""
        _check(func, FilterFunction, "filter")
        return self._then(self._filter_kind, "Filter", func, self._type)

    def process(
        self, func: ProcessFunction[Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Run a process function over the records."""
        if not isinstance(func, ProcessFunction):
            message = f"process() on a stream without keys needs a ProcessFunction; got {func!r}"
            raise InvalidJobError(message)
        return self._then(OperatorKind.PROCESS, "PROCESS", func, output_type)

    def process_batch(
        self, func: BatchFunction | KeyedBatchFunction, output_type: TypeInformation
    ) -> DataStream:
        """Run a function over the records as Arrow record batches. Not in PyFlink."""
        kind = KeyedBatchFunction if self._is_keyed else BatchFunction
        if not isinstance(func, kind):
            keyed = "a keyed stream" if self._is_keyed else "a stream without keys"
            message = f"process_batch() on {keyed} needs a {kind.__name__}; got {func!r}"
            raise InvalidJobError(message)
        _check_has_columns("its input", self._type)
        _check_has_columns("its output", output_type)
        if self._is_keyed:
            return self._then(
                OperatorKind.KEYED_PROCESS_BATCH, "KEYED PROCESS BATCH", func, output_type
            )
        return self._then(OperatorKind.PROCESS_BATCH, "PROCESS BATCH", func, output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Select fields of tuples, in this order."""
        output_type = projected_type(self._type, field_indexes)
        return self._then(OperatorKind.MAP, "Projection", Projection(field_indexes), output_type)

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """Partition the records by key; records of a key stay in order."""
        _check(key_selector, KeySelector, "key_by")
        check_type("key_type", key_type)
        partitioning = Partitioning(Exchange.HASH, key_selector, key_type)
        return KeyedStream(self._env, self._partitioned(partitioning), self)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Assign all records to windows, in one subtask."""
        return AllWindowedStream(self._values(), window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Assign all records to windows of `size` records. Not in PyFlink."""
        return AllWindowedStream(self._values(), count_windows(size, slide))

    def union(self, *streams: DataStream) -> DataStream:
        """Combine several streams into one; their declared types must be equal."""
        for stream in streams:
            self._check_beside("union", stream)
        upstreams = [u for s in (self, *streams) for u in s._values()._upstreams]
        types = (u.output_type for u in upstreams)
        declared = list(dict.fromkeys(t for t in types if t is not None))
        if len(declared) > 1:
            message = f"union() of streams of different types: {', '.join(map(repr, declared))}"
            raise InvalidJobError(message)
        return DataStream(self._env, tuple(upstreams))

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect two streams of any types as the inputs of one function."""
        if isinstance(ds, BroadcastStream):
            self._check_beside("connect", ds.input_stream)
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        self._check_beside("connect", ds)
        return ConnectedStreams(self, ds)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the records that the step's function yields as `(tag, record)`."""
        if not isinstance(output_tag, OutputTag):
            message = f"get_side_output() needs an OutputTag; got {output_tag!r}"
            raise InvalidJobError(message)
        step = self._transformation
        if step.kind in (OperatorKind.SOURCE, OperatorKind.DECOUPLE):
            message = (
                f"{step.name!r} has no function that could yield to side output "
                f"{output_tag.tag_id!r}: call get_side_output() on the step that does"
            )
            raise InvalidJobError(message)
        known = step.side_outputs.setdefault(output_tag.tag_id, output_tag)
        if known != output_tag:
            message = (
                f"side output {output_tag.tag_id!r} of {step.name!r} is requested as "
                f"{known.type_info!r} and as {output_tag.type_info!r}: use one type"
            )
            raise InvalidJobError(message)
        return DataStream(self._env, (Upstream(step, tag=output_tag),))

    def decouple(self, name: str = "Decouple") -> DataStream:
        """Run the following steps in a new stage, downstream of a channel and at its own pace.

        Records stay in their subtask, and in order. Useful if a slow step should not block the one
        before it. Not in PyFlink.
        """
        return self._then(OperatorKind.DECOUPLE, name, None, self._type)

    def transform(self, func: Callable[[DataFrame], DataFrame]) -> DataStream:
        """Run a Spark plan over the rows: projections, filters, built-in functions.

        The function is called when the program is built, and again when the job starts; it maps a
        DataFrame of the rows to another one. The stream needs a declared row type; the result has
        the type of the new columns. Not in PyFlink.

        Raises:
            InvalidJobError: the plan is not row-wise; the message names the alternative.
        """
        from penstock.spark.native.native_step import transform_step

        step = transform_step(self._env.get_spark_session(), func, self._type)
        return self._values()._then(OperatorKind.NATIVE, "Transform", step, step.output_type)

    def sql(self, query: str) -> DataStream:
        """Run a Spark SQL query over the rows, which are the view `stream`.

        As `transform`, with the session's views and functions. Not in PyFlink.

        Raises:
            InvalidJobError: the query is not row-wise; the message names the alternative.
        """
        from penstock.spark.native.native_step import sql_step

        step = sql_step(self._env.get_spark_session(), query, self._type)
        return self._values()._then(OperatorKind.NATIVE, "SQL", step, step.output_type)

    def rebalance(self) -> DataStream:
        """Distribute records round-robin."""
        return self._redistributed(Exchange.REBALANCE)

    def rescale(self) -> DataStream:
        """Distribute records round-robin."""
        return self._redistributed(Exchange.RESCALE)

    def shuffle(self) -> DataStream:
        """Distribute records randomly."""
        return self._redistributed(Exchange.SHUFFLE)

    def forward(self) -> DataStream:
        """Keep records in their subtask; needs equal parallelism."""
        return self._redistributed(Exchange.FORWARD)

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to every subtask.

        With descriptors, for broadcast state: `connect` another stream with the result.
        """
        stream = self._redistributed(Exchange.BROADCAST)
        if broadcast_state_descriptor is None:
            return stream
        descriptors = [broadcast_state_descriptor, *other_broadcast_state_descriptors]
        return BroadcastStream(stream, descriptors)

    def global_(self) -> DataStream:
        """Send every record to the first subtask."""
        return self._redistributed(Exchange.GLOBAL)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
    ) -> DataStream:
        """Send every record to the subtask that the partitioner returns for its key."""
        _check(partitioner, Partitioner, "partition_custom")
        _check(key_selector, KeySelector, "partition_custom")
        partitioning = Partitioning(Exchange.CUSTOM, key_selector, partitioner=partitioner)
        return DataStream(self._env, self._partitioned(partitioning))

    def cache(self) -> CachedDataStream:
        """Return this stream for use in several jobs; each job computes it again."""
        return CachedDataStream(self._env, (Upstream(self._transformation),))

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assign event time to the records, and watermarks to the stream."""
        if not isinstance(watermark_strategy, WatermarkStrategy):
            message = (
                "assign_timestamps_and_watermarks() needs a WatermarkStrategy; "
                f"got {watermark_strategy!r}"
            )
            raise InvalidJobError(message)
        transformation = Transformation(
            OperatorKind.ASSIGN_TIMESTAMPS,
            "Timestamps/Watermarks",
            None,
            self._upstreams,
            common_type(self._upstreams),
            watermarks=watermark_strategy,
        )
        return DataStream(self._env, (Upstream(transformation),))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record to standard output when its micro-batch is published."""
        return self.sink_to(PrintSink(sink_identifier)).name("Print to Std. Out")

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a sink."""
        if not isinstance(sink, Sink):
            message = f"sink_to() needs a Sink, such as FileSink...build(); got {sink!r}"
            raise InvalidJobError(message)
        transformation = Transformation(
            OperatorKind.SINK, f"Sink: {type(sink).__name__}", sink, self._upstreams
        )
        self._env._add_sink(transformation)
        return DataStreamSink(self._env, (Upstream(transformation),))

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Any]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and collect this stream's records.

        Returns an iterator to be closed (which cancels the job), or with `limit` a list of at most
        that many records.
        """
        if limit is not None:
            at_least_one("limit", limit)
        results = self._env._collect(self, job_execution_name)
        if limit is None:
            return results
        with results:
            return list(islice(results, limit))

    @property
    def _type(self) -> TypeInformation | None:
        return common_type(self._upstreams)

    @property
    def _is_keyed(self) -> bool:
        return False

    def _values(self) -> DataStream:
        return self

    def _check_beside(self, method: str, other: Any) -> None:
        if not isinstance(other, DataStream):
            message = f"{method}() needs a DataStream; got {other!r}"
            raise InvalidJobError(message)
        if other._env is not self._env:
            message = (
                f"{method}() of streams of two environments, which are two jobs: create both "
                "streams in one StreamExecutionEnvironment"
            )
            raise InvalidJobError(message)

    def _partitioned(self, partitioning: Partitioning) -> tuple[Upstream, ...]:
        return tuple(replace(u, partitioning=partitioning) for u in self._upstreams)

    def _redistributed(self, exchange: Exchange) -> DataStream:
        return DataStream(self._env, self._partitioned(Partitioning(exchange)))

    def _then(
        self, kind: OperatorKind, name: str, func: Function, output_type: TypeInformation | None
    ) -> DataStream:
        check_type("output_type", output_type)
        transformation = Transformation(kind, name, func, self._upstreams, output_type)
        return DataStream(self._env, (Upstream(transformation),))

    def _then_with(
        self,
        second: DataStream,
        kind: OperatorKind,
        name: str,
        func: Function,
        output_type: TypeInformation | None,
    ) -> DataStream:
        """Add a step with a second stream as its second input; called by connected streams."""
        if kind.is_keyed and not kind.has_broadcast_side:
            _check_key_types(self._upstreams[0], second._upstreams[0])
        as_second = tuple(replace(u, input=1) for u in second._upstreams)
        both = DataStream(self._env, (*self._upstreams, *as_second))
        return both._then(kind, name, func, output_type)


class CachedDataStream(DataStream):
    """A stream that several jobs use.

    Unlike in Flink, the records of the first job are not kept: each job computes them again.
    """

    def invalidate(self) -> None:
        """Accepted without effect: no records are kept."""


class KeyedStream(DataStream):
    """A stream that is partitioned by key: each key's records arrive in order.

    `map`, `flat_map` and `filter` have access to the key's state.
    """

    _map_kind = OperatorKind.KEYED_MAP
    _flat_map_kind = OperatorKind.KEYED_FLAT_MAP
    _filter_kind = OperatorKind.KEYED_FILTER

    AccumulateType = UnsupportedAttribute()

    def __init__(
        self, env: StreamExecutionEnvironment, upstreams: tuple[Upstream, ...], origin: DataStream
    ) -> None:
        super().__init__(env, upstreams)
        self._origin = origin

    def process(  # type: ignore[override]
        self,
        func: KeyedProcessFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Run a keyed process function over the records."""
        if not isinstance(func, KeyedProcessFunction):
            message = f"process() on a keyed stream needs a KeyedProcessFunction; got {func!r}"
            raise InvalidJobError(message)
        return self._then(OperatorKind.KEYED_PROCESS, "KEYED PROCESS", func, output_type)

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction[Any]) -> DataStream:
        """Reduce the records of each key, emitted after each record (BATCH: once per key)."""
        _check(func, ReduceFunction, "reduce")
        return self._then(OperatorKind.REDUCE, "Reduce", func, self._type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Assign the records of each key to windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Assign the records of each key to windows of `size` records."""
        return WindowedStream(self, count_windows(size, slide))

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Emit a rolling sum of one field; the others stay those of the first record."""
        return self._rolling(position_to_sum, add)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Emit the minimum of one field; the others stay those of the first record."""
        return self._rolling(position_to_min, least)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Emit the maximum of one field; the others stay those of the first record."""
        return self._rolling(position_to_max, greatest)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Emit the record with the minimum of one field, the first of equals."""
        return self._rolling(position_to_min_by, least, whole_record=True)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Emit the record with the maximum of one field, the first of equals."""
        return self._rolling(position_to_max_by, greatest, whole_record=True)

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """Partition by another key instead."""
        return self._origin.key_by(key_selector, key_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Select fields of tuples, in this order; the result is not keyed."""
        return self._values().project(*field_indexes)

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector[Any, Any],
    ) -> DataStream:
        """Not possible on a keyed stream."""
        return self._redistributed(Exchange.CUSTOM)

    def decouple(self, name: str = "Decouple") -> DataStream:
        """Not possible on a keyed stream, which starts a new stage already."""
        message = (
            "key_by() starts a new stage already: call decouple() before it, or after the keyed "
            "step"
        )
        raise InvalidJobError(message)

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a sink."""
        return self._values().sink_to(sink)

    def _redistributed(self, exchange: Exchange) -> DataStream:
        message = f"a keyed stream is partitioned by its key: {exchange.value}() is not possible"
        raise InvalidJobError(message)

    @property
    def _is_keyed(self) -> bool:
        return True

    def _values(self) -> DataStream:
        return self._origin

    def _rolling(
        self, position: int | str, combine: Combine, whole_record: bool = False
    ) -> DataStream:
        if not isinstance(position, (int, str)):
            message = f"a field is a position or a name; got {position!r}"
            raise InvalidJobError(message)
        return self.reduce(RollingAggregate(position, combine, whole_record))


def _check(func: Any, kind: type, method: str) -> None:
    if isinstance(func, type) and issubclass(func, kind):
        message = f"{method}() needs an instance; got the class: did you mean {func.__name__}()?"
        raise InvalidJobError(message)
    if not isinstance(func, kind) and not callable(func):
        message = f"{method}() needs a {kind.__name__} or a callable; got {func!r}"
        raise InvalidJobError(message)


def _check_has_columns(what: str, type_info: TypeInformation | None) -> None:
    if batch_schema_for(type_info) is None:
        message = (
            f"process_batch() needs {what} to be columns, but its type is {type_info!r}: declare a "
            "basic type, or a tuple or row of basic types, as output_type"
        )
        raise InvalidJobError(message)


def _check_key_types(first: Upstream, second: Upstream) -> None:
    types = [u.partitioning.key_type or Types.PICKLED_BYTE_ARRAY() for u in (first, second)]
    if types[0] != types[1]:
        message = (
            f"the keys of connected streams must have one type, but are {types[0]!r} and "
            f"{types[1]!r}: pass the same key_type to both key_by()"
        )
        raise InvalidJobError(message)
