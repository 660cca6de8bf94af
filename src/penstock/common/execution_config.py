"""PyFlink's execution settings: a view of the environment's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from penstock.common.config.known_options import MAX_PARALLELISM, PARALLELISM
from penstock.common.config.option_kinds import BOOLEAN, DURATION, STRING
from penstock.common.config.pipeline_options import (
    AUTO_GENERATE_UIDS,
    AUTO_WATERMARK_INTERVAL,
    GLOBAL_JOB_PARAMETERS,
)
from penstock.common.config_options import ConfigOption, parse, read
from penstock.common.configuration import Configuration

__all__ = ["ExecutionConfig"]

T = TypeVar("T")

# Options of Flink that are stored and have no effect.
_CLOSURE_CLEANER = ConfigOption("pipeline.closure-cleaner-level", STRING, "RECURSIVE")
_FORCE_KRYO = ConfigOption("pipeline.force-kryo", BOOLEAN, False)
_FORCE_AVRO = ConfigOption("pipeline.force-avro", BOOLEAN, False)
_GENERIC_TYPES = ConfigOption("pipeline.generic-types", BOOLEAN, True)
_OBJECT_REUSE = ConfigOption("pipeline.object-reuse", BOOLEAN, False)
_COMPRESSION = ConfigOption("execution.checkpointing.snapshot-compression", BOOLEAN, False)
_LATENCY = ConfigOption("metrics.latency.interval", DURATION, timedelta())
_CANCEL_INTERVAL = ConfigOption("task.cancellation.interval", DURATION, timedelta(seconds=30))
_CANCEL_TIMEOUT = ConfigOption("task.cancellation.timeout", DURATION, timedelta(seconds=180))


_Setter = Callable[["ExecutionConfig"], "ExecutionConfig"]
_Getter = Callable[["ExecutionConfig"], bool]


def _flag(option: ConfigOption[bool], *, enabled: bool = True) -> tuple[_Setter, _Setter, _Getter]:
    """Return the methods that enable, disable and read a setting without effect."""

    def enable(self: ExecutionConfig) -> ExecutionConfig:
        return self._set(option, enabled)

    def disable(self: ExecutionConfig) -> ExecutionConfig:
        return self._set(option, not enabled)

    def is_enabled(self: ExecutionConfig) -> bool:
        return read(self._configuration, option) is enabled

    return enable, disable, is_enabled


class ExecutionConfig:
    """Reads and writes keys of one environment's configuration; times are milliseconds.

    Parallelism, uids, job parameters and the watermark interval have an effect. Settings of Flink's
    runtime (closure cleaner, Kryo, object reuse, latency markers, task cancellation) are stored
    without effect.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_parallelism(self) -> int:
        """Return the default parallelism, PARALLELISM_DEFAULT if none is set."""
        return read(self._configuration, PARALLELISM) or self.PARALLELISM_DEFAULT

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default parallelism; PARALLELISM_DEFAULT for the number of cores."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(PARALLELISM.key)
            return self
        return self._set(PARALLELISM, parallelism)

    def get_max_parallelism(self) -> int:
        """Return the default max parallelism, -1 if it is derived."""
        return read(self._configuration, MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the default max parallelism of steps, which is their number of key groups."""
        return self._set(MAX_PARALLELISM, max_parallelism)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Allow steps without a uid, which is the default."""
        return self._set(AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Reject jobs that have a step without a uid."""
        return self._set(AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Tell whether steps without a uid are allowed."""
        return read(self._configuration, AUTO_GENERATE_UIDS)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return what functions get by `get_job_parameter`."""
        return read(self._configuration, GLOBAL_JOB_PARAMETERS)

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> ExecutionConfig:
        """Set what functions get by `get_job_parameter`; values become text."""
        return self._set(GLOBAL_JOB_PARAMETERS, dict(global_job_parameters_dict))

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set how often a custom watermark generator is called while idle; 0 for never.

        With records, watermarks are generated per micro-batch.
        """
        return self._set(AUTO_WATERMARK_INTERVAL, f"{interval} ms")

    def get_auto_watermark_interval(self) -> int:
        """Return how often a custom watermark generator is called while idle."""
        return self._millis(AUTO_WATERMARK_INTERVAL)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Stored without effect: Python has no such closures."""
        return self._set(_CLOSURE_CLEANER, "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Stored without effect: Python has no such closures."""
        return self._set(_CLOSURE_CLEANER, "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return the setting, which has no effect."""
        return read(self._configuration, _CLOSURE_CLEANER) != "NONE"

    enable_force_kryo, disable_force_kryo, is_force_kryo_enabled = _flag(_FORCE_KRYO)
    enable_force_avro, disable_force_avro, is_force_avro_enabled = _flag(_FORCE_AVRO)
    disable_generic_types, enable_generic_types, has_generic_types_disabled = _flag(
        _GENERIC_TYPES, enabled=False
    )
    enable_object_reuse, disable_object_reuse, is_object_reuse_enabled = _flag(_OBJECT_REUSE)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Stored without effect: there are no latency markers."""
        return self._set(_LATENCY, f"{interval} ms")

    def get_latency_tracking_interval(self) -> int:
        """Return the setting, which has no effect."""
        return self._millis(_LATENCY)

    def get_task_cancellation_interval(self) -> int:
        """Return the setting, which has no effect."""
        return self._millis(_CANCEL_INTERVAL)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Stored without effect: Spark cancels its tasks."""
        return self._set(_CANCEL_INTERVAL, f"{interval} ms")

    def get_task_cancellation_timeout(self) -> int:
        """Return the setting, which has no effect."""
        return self._millis(_CANCEL_TIMEOUT)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Stored without effect: Spark cancels its tasks."""
        return self._set(_CANCEL_TIMEOUT, f"{timeout} ms")

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return an empty dict: there is no Kryo."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return an empty list: there is no Kryo."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return an empty list: there are no POJOs."""
        return []

    def is_use_snapshot_compression(self) -> bool:
        """Return the setting, which has no effect."""
        return read(self._configuration, _COMPRESSION)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Stored without effect: the state backend determines compression."""
        return self._set(_COMPRESSION, use_snapshot_compression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    __hash__ = None  # type: ignore[assignment]

    def _set(self, option: ConfigOption[T], value: object) -> ExecutionConfig:
        parse(option.key, option, value)
        self._configuration.set(option.key, value)
        return self

    def _millis(self, option: ConfigOption[timedelta]) -> int:
        return read(self._configuration, option) // timedelta(milliseconds=1)
