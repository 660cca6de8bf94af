"""The execution environment: builds programs and runs them on Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from penstock.common.channel_info import ChannelInfo
from penstock.common.config.checkpoint_options import INCREMENTAL_CHECKPOINTS, SAVEPOINT_DIR
from penstock.common.config.configuration_file import global_configuration
from penstock.common.config.known_options import (
    PIPELINE_NAME,
    RUNTIME_MODE,
    STATE_BACKEND,
)
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.live_figures import LiveFigures
from penstock.common.metric_values import MetricInfo
from penstock.common.restart_strategy import RestartStrategyConfiguration
from penstock.common.typeinfo import TypeInformation, check_type
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.collect_sink import CollectSink
from penstock.connectors.contracts.source import Boundedness, Source
from penstock.connectors.formats.avro.files import AvroInputFormat
from penstock.connectors.indexed_sources import CollectionSource
from penstock.connectors.socket.source import SocketSource
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.data_stream import DataStream
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.runtime_settings import RuntimeSettings
from penstock.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from penstock.datastream.streams.collecting import CloseableIterator, CollectedRecords
from penstock.errors import InvalidJobError, UnknownChannelError
from penstock.graph.job_graph import GraphSettings, build_job_graph
from penstock.graph.plan import Plan, plan_job
from penstock.graph.render import render_stream_graph
from penstock.graph.transformation import OperatorKind, Transformation, Upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.job.launched_job import LaunchedJob

__all__ = ["StreamExecutionEnvironment"]


Launcher = Callable[[Plan, Configuration, bool], "LaunchedJob"]

_DEFAULT_JOB_NAME = "Penstock Streaming Job"

_explaining: ContextVar[Callable[[Plan], None] | None] = ContextVar("explaining", default=None)


@contextmanager
def collect_plans(take: Callable[[Plan], None]) -> Iterator[None]:
    """Pass the plan of every job that is executed in this context to `take`, without running it."""
    token = _explaining.set(take)
    try:
        yield
    finally:
        _explaining.reset(token)


_created: ContextVar[list[StreamExecutionEnvironment] | None] = ContextVar("created", default=None)


@contextmanager
def created_environments() -> Iterator[list[StreamExecutionEnvironment]]:
    """Collect the environments that are created in this context."""
    environments: list[StreamExecutionEnvironment] = []
    token = _created.set(environments)
    try:
        yield environments
    finally:
        _created.reset(token)


class StreamExecutionEnvironment(RuntimeSettings):
    """Builds programs and runs them on Spark."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        super().__init__()
        self._mode: RuntimeExecutionMode | None = None
        self._sinks: list[Transformation] = []
        self._launcher: Launcher = _on_spark
        if (created := _created.get()) is not None:
            created.append(self)
        self.configure(global_configuration())
        if configuration is not None:
            self.configure(configuration)

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Return a new environment.

        It uses the active SparkSession if there is one, else one with the configuration's `spark.*`
        keys, by default on all cores of this machine. Its defaults are the settings of
        `config.yaml` in PENSTOCK_CONF_DIR and of the command line.
        """
        return StreamExecutionEnvironment(configuration)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose between STREAMING, BATCH and AUTOMATIC."""
        self._mode = execution_mode
        return self

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint at an interval of milliseconds, and restore it after a failure.

        The mode is EXACTLY_ONCE unless it is set here or in the configuration.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the checkpoint settings, for reading and changing."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, -1 if there is none."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the checkpointing mode."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the checkpointing mode."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether barriers overtake records."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the setting, which has no effect."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the default directory of savepoints."""
        self.configure(Configuration().set(SAVEPOINT_DIR, directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the default directory of savepoints."""
        directory = read(self._configuration, SAVEPOINT_DIR)
        return None if directory is None else str(directory)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Set the restart strategy; in PyFlink before 2.0."""
        self.configure(restart_strategy_configuration.to_configuration())
        return self

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set the state backend; in PyFlink before 2.0."""
        self.configure(state_backend.to_configuration())
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return the state backend, None for one without a class."""
        match read(self._configuration, STATE_BACKEND):
            case "hashmap":
                return HashMapStateBackend()
            case "rocksdb":
                return EmbeddedRocksDBStateBackend(
                    read(self._configuration, INCREMENTAL_CHECKPOINTS)
                )
        return None

    def from_collection(
        self, collection: Iterable[Any], type_info: TypeInformation | None = None
    ) -> DataStream:
        """Create a stream of a collection's elements; read in one subtask."""
        check_type("type_info", type_info)
        return self._source("Collection Source", CollectionSource(collection, type_info))

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Create a stream of a source's records, with event time by the watermark strategy."""
        if not isinstance(source, Source):
            message = f"from_source() needs a Source, such as FileSource...build(); got {source!r}"
            raise InvalidJobError(message)
        if not isinstance(watermark_strategy, WatermarkStrategy):
            message = f"from_source() needs a WatermarkStrategy; got {watermark_strategy!r}"
            raise InvalidJobError(message)
        name = f"Source: {source_name}"
        if watermark_strategy.does_nothing:
            return self._source(name, source, type_info)
        return self._source(name, source.with_timestamps(), type_info, watermark_strategy)

    def create_input(
        self, input_format: AvroInputFormat, type_info: TypeInformation | None = None
    ) -> DataStream:
        """Create a stream of an input format's records; only `AvroInputFormat` is supported."""
        if not isinstance(input_format, AvroInputFormat):
            message = f"create_input() needs an AvroInputFormat; got {input_format!r}"
            raise InvalidJobError(message)
        return self._source("Source: Custom File Source", input_format.source(), type_info)

    def socket_text_stream(self, hostname: str, port: int) -> DataStream:
        """Create a stream of the lines of a socket; each is made durable before it is used."""
        source = SocketSource(hostname, port)
        return self._source("Source: Socket Stream", source)

    def get_spark_session(self) -> SparkSession:
        """Return the Spark session of this environment's jobs, started if necessary.

        For example to create a DataFrame for `from_dataframe`.
        """
        from penstock.spark.launch import session_for

        return session_for(self._configuration)

    def from_dataframe(self, df: DataFrame, name: str = "DataFrame") -> DataStream:
        """Create a stream of a Spark DataFrame's rows, each a `Row` with its column names."""
        from penstock.spark.sources.dataframe_source import DataFrameSource

        return self._source(f"Source: {name}", DataFrameSource(df))

    def from_stream(
        self,
        df: DataFrame,
        name: str = "Stream",
        *,
        bounded: bool = False,
        trigger: str | None = None,
    ) -> DataStream:
        """Create a stream of a streaming DataFrame's rows (`spark.readStream`), in append mode.

        The query may contain Spark's stateful operators: its state is part of the job's checkpoints
        and is restored with them. `bounded` reads the data that exists when the job starts, then
        ends; `trigger` is the interval of batches, such as "5 seconds", else they follow at once.
        """
        from penstock.spark.sources.stream_source import StreamSource

        return self._source(f"Source: {name}", StreamSource(df, bounded=bounded, trigger=trigger))

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program until it finishes.

        Ctrl-C ends it between micro-batches, a second Ctrl-C immediately.
        """
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            return JobExecutionResult(JobID.generate(), 0)
        return self._launch(job_name).run_to_completion()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program and return a client for it."""
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            return JobClient(_ExplainedJob(), _frame)
        return JobClient(self._launch(job_name), _frame)

    def get_execution_plan(self) -> str:
        """Return the steps of the program as Flink's JSON plan, which is a Python literal too.

        `penstock explain --json` prints stages and channels.
        """
        # Python would read an escaped character beyond 16 bits as two.
        return json.dumps(render_stream_graph(self.planned()), indent=2, ensure_ascii=False)

    def planned(self) -> Plan:
        """Return the plan of the program, which can be executed afterwards. Not in PyFlink."""
        sinks = list(self._sinks)
        try:
            return self._plan(None)
        finally:
            self._sinks = sinks

    def close(self) -> None:
        """Discard steps that were not executed."""
        self._sinks.clear()

    def last_unexecuted_line(self) -> str | None:
        """Return the line of the last sink that was not executed, None if there is none."""
        return self._sinks[-1].call_site if self._sinks else None

    def _add_sink(self, sink: Transformation) -> None:
        self._sinks.append(sink)

    def _collect(self, stream: DataStream, job_name: str | None) -> CloseableIterator:
        received = CollectedRecords()
        stream.sink_to(CollectSink(received.put)).name("Data stream collect sink")
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            received.end()
            return CloseableIterator(received, _ExplainedJob())
        job = self._launch(job_name)
        job.when_ended(received.end)
        return CloseableIterator(received, job)

    def _source(
        self,
        name: str,
        source: Source,
        type_info: TypeInformation | None = None,
        watermarks: WatermarkStrategy | None = None,
    ) -> DataStream:
        check_type("type_info", type_info)
        transformation = Transformation(
            OperatorKind.SOURCE,
            name,
            source,
            output_type=type_info or source.type_info(),
            parallelism=source.default_parallelism(),
            watermarks=watermarks,
        )
        return DataStream(self, (Upstream(transformation),))

    def _plan(self, job_name: str | None) -> Plan:
        name = job_name or read(self._configuration, PIPELINE_NAME) or _DEFAULT_JOB_NAME
        max_parallelism = self.get_max_parallelism()
        settings = GraphSettings(
            parallelism=self.get_parallelism(),
            max_parallelism=max_parallelism if max_parallelism > 0 else None,
            chaining=self.is_chaining_enabled(),
            generates_uids=self.get_config().has_auto_generated_uids_enabled(),
        )
        sinks, self._sinks = self._sinks, []
        return plan_job(build_job_graph(name, sinks, settings))

    def _is_batch(self, plan: Plan) -> bool:
        mode = self._mode or RuntimeExecutionMode[read(self._configuration, RUNTIME_MODE)]
        unbounded = [
            s.head.name
            for s in plan.stages
            if s.is_source and s.head.function.boundedness() is not Boundedness.BOUNDED
        ]
        if mode is RuntimeExecutionMode.BATCH and unbounded:
            message = (
                f"BATCH mode needs bounded sources, but {unbounded[0]!r} is unbounded; use "
                "RuntimeExecutionMode.STREAMING"
            )
            raise InvalidJobError(message)
        return mode is RuntimeExecutionMode.BATCH or (
            mode is RuntimeExecutionMode.AUTOMATIC and not unbounded
        )

    def _launch(self, job_name: str | None) -> LaunchedJob:
        plan = self._plan(job_name)
        return self._launcher(plan, self._configuration, self._is_batch(plan))


class _ExplainedJob:
    """The client of a job that was only explained: finished, with empty results."""

    job_id = JobID.generate()

    def cancel(self) -> None:
        pass

    def wait_for_end(self, seconds: float) -> bool:
        return True

    def raise_failure(self) -> None:
        pass

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def result(self) -> Future[JobExecutionResult]:
        return _done(JobExecutionResult(self.job_id, 0))

    def accumulators(self) -> dict[str, Any]:
        return {}

    def metrics(self) -> list[MetricInfo]:
        return []

    def live_figures(self) -> LiveFigures:
        return LiveFigures(time.time(), "", status=JobStatus.FINISHED.name)

    def micro_batches(self) -> list[Any]:
        return []

    def channels(self) -> list[ChannelInfo]:
        return []

    def channel_rows(self, channel: str | int, limit: int | None) -> Any:
        raise UnknownChannelError(channel, [])

    def savepoint(self, directory: str | None) -> Future[str]:
        return _done("")

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        return _done("")


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _on_spark(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
    # Imported here because building a program does not need Spark.
    from penstock.spark.launch import launch_on_spark

    return launch_on_spark(plan, configuration, batch_mode)


def _frame(rows: Any, spark: Any) -> Any:
    from penstock.spark.session import channel_dataframe

    return channel_dataframe(rows, spark)
