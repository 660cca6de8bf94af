"""What programs of every kind share: types, rows, configuration, time."""

from typing import TYPE_CHECKING

from penstock.common.channel_info import ChannelInfo
from penstock.common.completable_future import CompletableFuture
from penstock.common.config_options import ConfigOption, ConfigOptions
from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.common.metric_figures import MetricInfo
from penstock.common.missing_names import asked_of
from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.row import Row, RowKind
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from penstock.common.serializer import TypeSerializer
from penstock.common.time import Duration, Instant, Time
from penstock.common.typeinfo import TypeInformation, Types
from penstock.common.watermark_strategy import WatermarkStrategy

__all__ = [
    "ByteArraySchema",
    "ChannelInfo",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "MetricInfo",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]

if not TYPE_CHECKING:  # a type checker shall find typos
    __getattr__ = asked_of(__name__)
