"""The environment: where a program starts, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from penstock.common.channel_info import ChannelInfo
from penstock.common.checkpoint_options import INCREMENTAL_CHECKPOINTS, SAVEPOINT_DIR
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.configuration_file import ambient_configuration
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.known_options import (
    PIPELINE_NAME,
    RUNTIME_MODE,
    STATE_BACKEND,
)
from penstock.common.metric_figures import MetricInfo
from penstock.common.restart_strategy import RestartStrategyConfiguration
from penstock.common.typeinfo import TypeInformation, check_type
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.avro_files import AvroInputFormat
from penstock.connectors.collect import CollectSink
from penstock.connectors.collection import CollectionSource
from penstock.connectors.socket import SocketSource
from penstock.connectors.source import Boundedness, Source
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.collecting import CloseableIterator, Received
from penstock.datastream.data_stream import DataStream
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.runtime_settings import RuntimeSettings
from penstock.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from penstock.errors import InvalidJobError, UnknownChannelError
from penstock.graph.job_graph import GraphSettings, build_job_graph
from penstock.graph.plan import Plan, plan_job
from penstock.graph.transformation import OperatorKind, Transformation, Upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.job.launch import LaunchedJob

__all__ = ["StreamExecutionEnvironment"]


Launcher = Callable[[Plan, Configuration, bool], "LaunchedJob"]

_DEFAULT_JOB_NAME = "Penstock Streaming Job"

_explaining: ContextVar[Callable[[Plan], None] | None] = ContextVar("explaining", default=None)


@contextmanager
def plans_instead_of_runs(take: Callable[[Plan], None]) -> Iterator[None]:
    """Let every job that is executed inside give its plan to `take` and not run."""
    token = _explaining.set(take)
    try:
        yield
    finally:
        _explaining.reset(token)


class StreamExecutionEnvironment(RuntimeSettings):
    """Builds programs and runs them on Spark."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        super().__init__()
        self._mode: RuntimeExecutionMode | None = None
        self._sinks: list[Transformation] = []
        self._launcher: Launcher = _on_spark
        self.configure(ambient_configuration())
        if configuration is not None:
            self.configure(configuration)

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Return a new environment.

        It runs on the active SparkSession if there is one, else on one made from the
        configuration's `spark.*` keys, by default on all cores of this machine. It starts from
        the settings of `config.yaml` in PENSTOCK_CONF_DIR and of the command line.
        """
        return StreamExecutionEnvironment(configuration)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Choose between STREAMING, BATCH and AUTOMATIC."""
        self._mode = execution_mode
        return self

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Take a checkpoint every so many milliseconds, and come back from it after a failure.

        The mode stays what it is, EXACTLY_ONCE if nothing says otherwise, unless it is given.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the settings of checkpoints, to read and to change."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """Return the milliseconds from one checkpoint to the next, -1 if there is no interval."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee checkpoints are taken for."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the guarantee checkpoints are taken for."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether barriers overtake records."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set about it, which changes nothing here."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set where savepoints go that are asked for without a directory."""
        self.configure(Configuration().set(SAVEPOINT_DIR, directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return where savepoints go that are asked for without a directory."""
        directory = read(self._configuration, SAVEPOINT_DIR)
        return None if directory is None else str(directory)

    def set_restart_strategy(
        self, restart_strategy_configuration: RestartStrategyConfiguration
    ) -> StreamExecutionEnvironment:
        """Choose when a failed job is started again; PyFlink had this before 2.0."""
        self.configure(restart_strategy_configuration.to_configuration())
        return self

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Choose where state lives; PyFlink had this before 2.0."""
        self.configure(state_backend.to_configuration())
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return where state lives, None for a backend that has no class of its own."""
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
        """Make a stream of a collection's elements; read in one subtask."""
        check_type("type_info", type_info)
        return self._source("Collection Source", CollectionSource(collection, type_info))

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Make a stream of what a source reads, with the event time that the strategy gives it."""
        if not isinstance(source, Source):
            message = (
                f"from_source() needs a Source, as FileSource...build() gives one; got {source!r}"
            )
            raise InvalidJobError(message)
        if not isinstance(watermark_strategy, WatermarkStrategy):
            message = f"from_source() needs a WatermarkStrategy; got {watermark_strategy!r}"
            raise InvalidJobError(message)
        name = f"Source: {source_name}"
        if watermark_strategy.does_nothing:
            return self._source(name, source, type_info)
        return self._source(name, source.with_time(), type_info, watermark_strategy)

    def create_input(
        self, input_format: AvroInputFormat, type_info: TypeInformation | None = None
    ) -> DataStream:
        """Make a stream of what an input format reads, of which there is one: for Avro files."""
        if not isinstance(input_format, AvroInputFormat):
            message = f"create_input() needs an AvroInputFormat; got {input_format!r}"
            raise InvalidJobError(message)
        return self._source("Source: Custom File Source", input_format.source(), type_info)

    def socket_text_stream(self, hostname: str, port: int) -> DataStream:
        """Make a stream of the lines a server sends; each is made durable before it is used."""
        source = SocketSource(hostname, port)
        return self._source("Source: Socket Stream", source)

    def get_spark_session(self) -> SparkSession:
        """Return the session this environment's jobs run on, started now if need be.

        For what is built with Spark itself, as a DataFrame for `from_dataframe`.
        """
        from penstock.spark.launch import session_for

        return session_for(self._configuration)

    def from_dataframe(self, df: DataFrame, name: str = "DataFrame") -> DataStream:
        """Make a stream of a Spark DataFrame's rows, each a `Row` with its column names."""
        from penstock.spark.dataframe_source import DataFrameSource

        return self._source(f"Source: {name}", DataFrameSource(df))

    def from_stream(
        self,
        df: DataFrame,
        name: str = "Stream",
        *,
        bounded: bool = False,
        trigger: str | None = None,
    ) -> DataStream:
        """Make a stream of a streaming DataFrame's rows (`spark.readStream`), in append mode.

        Spark's own stateful operators may be in it: what the query keeps is part of the job's
        checkpoints, and the query goes on from there. `bounded` reads what is there when the job
        starts and ends; `trigger` is how often a batch begins, as "5 seconds", else at once.
        """
        from penstock.spark.stream_source import StreamSource

        return self._source(f"Source: {name}", StreamSource(df, bounded=bounded, trigger=trigger))

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program to its end.

        Ctrl-C ends it between micro-batches, a second Ctrl-C at once.
        """
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            return JobExecutionResult(JobID.generate(), 0)
        return self._launch(job_name).run_to_the_end()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program and return a client for it."""
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            return JobClient(_NeverRun(), _frame)
        return JobClient(self._launch(job_name), _frame)

    def get_execution_plan(self) -> str:
        """Return stages, channels and chains of the program as JSON."""
        import json

        from penstock.graph.render import render_json

        sinks = list(self._sinks)
        try:
            return json.dumps(render_json(self._plan(None)), indent=2)
        finally:
            self._sinks = sinks

    def close(self) -> None:
        """Forget the steps that were not executed."""
        self._sinks.clear()

    def _add_sink(self, sink: Transformation) -> None:
        self._sinks.append(sink)

    def _collect(self, stream: DataStream, job_name: str | None) -> CloseableIterator:
        received = Received()
        stream.sink_to(CollectSink(received.put)).name("Data stream collect sink")
        if (take := _explaining.get()) is not None:
            take(self._plan(job_name))
            received.end()
            return CloseableIterator(received, _NeverRun())
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
                f"BATCH mode needs bounded sources, and {unbounded[0]!r} never ends; "
                "use RuntimeExecutionMode.STREAMING"
            )
            raise InvalidJobError(message)
        return mode is RuntimeExecutionMode.BATCH or (
            mode is RuntimeExecutionMode.AUTOMATIC and not unbounded
        )

    def _launch(self, job_name: str | None) -> LaunchedJob:
        plan = self._plan(job_name)
        return self._launcher(plan, self._configuration, self._is_batch(plan))


class _NeverRun:
    """Stands in for a job that was only explained."""

    job_id = JobID.generate()

    def cancel(self) -> None:
        """Do nothing."""

    def wait_for_end(self, seconds: float) -> bool:
        """Return at once."""
        return True

    def raise_failure(self) -> None:
        """Do nothing."""

    def status(self) -> JobStatus:
        """Return FINISHED, as `execute` returns: what the program does next may hold a job too."""
        return JobStatus.FINISHED

    def result(self) -> Future[JobExecutionResult]:
        """Return an empty result."""
        future: Future[JobExecutionResult] = Future()
        future.set_result(JobExecutionResult(self.job_id, 0))
        return future

    def accumulators(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def metrics(self) -> list[MetricInfo]:
        """Return nothing."""
        return []

    def micro_batches(self) -> list[Any]:
        """Return nothing."""
        return []

    def channels(self) -> list[ChannelInfo]:
        """Return nothing."""
        return []

    def channel_rows(self, channel: str | int, limit: int | None) -> Any:
        """Refuse: there is nothing to look into."""
        raise UnknownChannelError(channel, [])

    def savepoint(self, directory: str | None) -> Future[str]:
        """Return no path."""
        path: Future[str] = Future()
        path.set_result("")
        return path

    def stop(self, directory: str | None, *, drain: bool) -> Future[str]:
        """Return no path."""
        return self.savepoint(directory)


def _on_spark(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
    # Building a program needs no Spark; running it does.
    from penstock.spark.launch import launch_on_spark

    return launch_on_spark(plan, configuration, batch_mode)


def _frame(rows: Any, spark: Any) -> Any:
    from penstock.spark.channel_frame import channel_frame

    return channel_frame(rows, spark)
