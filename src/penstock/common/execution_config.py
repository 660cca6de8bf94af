"""PyFlink's object of execution settings: a view of the environment's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from penstock.common.config_options import ConfigOption, parse, read
from penstock.common.configuration import Configuration
from penstock.common.known_options import MAX_PARALLELISM, PARALLELISM
from penstock.common.option_kinds import BOOLEAN, DURATION, STRING
from penstock.common.pipeline_options import (
    AUTO_GENERATE_UIDS,
    AUTO_WATERMARK_INTERVAL,
    GLOBAL_JOB_PARAMETERS,
)

__all__ = ["ExecutionConfig"]

T = TypeVar("T")

# Words Flink knows and penstock keeps without acting on them.
_CLOSURE_CLEANER = ConfigOption("pipeline.closure-cleaner-level", STRING, "RECURSIVE")
_FORCE_KRYO = ConfigOption("pipeline.force-kryo", BOOLEAN, False)
_FORCE_AVRO = ConfigOption("pipeline.force-avro", BOOLEAN, False)
_GENERIC_TYPES = ConfigOption("pipeline.generic-types", BOOLEAN, True)
_OBJECT_REUSE = ConfigOption("pipeline.object-reuse", BOOLEAN, False)
_COMPRESSION = ConfigOption("execution.checkpointing.snapshot-compression", BOOLEAN, False)
_LATENCY = ConfigOption("metrics.latency.interval", DURATION, timedelta())
_CANCEL_INTERVAL = ConfigOption("task.cancellation.interval", DURATION, timedelta(seconds=30))
_CANCEL_TIMEOUT = ConfigOption("task.cancellation.timeout", DURATION, timedelta(seconds=180))


class ExecutionConfig:
    """Reads and writes keys of one environment's configuration; times are milliseconds.

    Parallelism, uids, job parameters and the time between watermarks are acted on. What only
    Flink's runtime needs (closures, Kryo, object reuse, latency markers, ways of cancelling) is
    kept, and changes nothing.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_parallelism(self) -> int:
        """Return the default parallelism, PARALLELISM_DEFAULT if nobody set one."""
        return read(self._configuration, PARALLELISM) or self.PARALLELISM_DEFAULT

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default parallelism; PARALLELISM_DEFAULT leaves it to the machine."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(PARALLELISM.key)
            return self
        return self._set(PARALLELISM, parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, -1 if it is derived."""
        return read(self._configuration, MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups of steps that do not say so themselves."""
        return self._set(MAX_PARALLELISM, max_parallelism)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Let steps come without a uid, as they may by default."""
        return self._set(AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse a job that has a step without a uid."""
        return self._set(AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Tell whether steps may come without a uid."""
        return read(self._configuration, AUTO_GENERATE_UIDS)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return what functions find by `get_job_parameter`."""
        return read(self._configuration, GLOBAL_JOB_PARAMETERS)

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> ExecutionConfig:
        """Set what functions find by `get_job_parameter`; values become text."""
        return self._set(GLOBAL_JOB_PARAMETERS, dict(global_job_parameters_dict))

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set how often a generator of one's own is asked while no records come; 0 for never.

        Else watermarks come with micro-batches.
        """
        return self._set(AUTO_WATERMARK_INTERVAL, f"{interval} ms")

    def get_auto_watermark_interval(self) -> int:
        """Return how often a generator of one's own is asked while no records come."""
        return self._millis(AUTO_WATERMARK_INTERVAL)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accept it: Python has no such closures."""
        return self._set(_CLOSURE_CLEANER, "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accept it: Python has no such closures."""
        return self._set(_CLOSURE_CLEANER, "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set about it."""
        return read(self._configuration, _CLOSURE_CLEANER) != "NONE"

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Accept it: there are no latency markers."""
        return self._set(_LATENCY, f"{interval} ms")

    def get_latency_tracking_interval(self) -> int:
        """Return what was set about it."""
        return self._millis(_LATENCY)

    def get_task_cancellation_interval(self) -> int:
        """Return what was set about it."""
        return self._millis(_CANCEL_INTERVAL)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Accept it: Spark cancels its tasks."""
        return self._set(_CANCEL_INTERVAL, f"{interval} ms")

    def get_task_cancellation_timeout(self) -> int:
        """Return what was set about it."""
        return self._millis(_CANCEL_TIMEOUT)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Accept it: Spark cancels its tasks."""
        return self._set(_CANCEL_TIMEOUT, f"{timeout} ms")

    def enable_force_kryo(self) -> ExecutionConfig:
        """Accept it: there is no Kryo."""
        return self._set(_FORCE_KRYO, True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Accept it: there is no Kryo."""
        return self._set(_FORCE_KRYO, False)

    def is_force_kryo_enabled(self) -> bool:
        """Return what was set about it."""
        return read(self._configuration, _FORCE_KRYO)

    def enable_force_avro(self) -> ExecutionConfig:
        """Accept it: there are no POJOs."""
        return self._set(_FORCE_AVRO, True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Accept it: there are no POJOs."""
        return self._set(_FORCE_AVRO, False)

    def is_force_avro_enabled(self) -> bool:
        """Return what was set about it."""
        return read(self._configuration, _FORCE_AVRO)

    def enable_generic_types(self) -> ExecutionConfig:
        """Accept it: types are declared or pickled."""
        return self._set(_GENERIC_TYPES, True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Accept it: types are declared or pickled."""
        return self._set(_GENERIC_TYPES, False)

    def has_generic_types_disabled(self) -> bool:
        """Return what was set about it."""
        return not read(self._configuration, _GENERIC_TYPES)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Accept it: records are copied where it is needed, and nowhere else."""
        return self._set(_OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Accept it: records are copied where it is needed, and nowhere else."""
        return self._set(_OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set about it."""
        return read(self._configuration, _OBJECT_REUSE)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return none: there is no Kryo."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return none: there is no Kryo."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return none: there are no POJOs."""
        return []

    def is_use_snapshot_compression(self) -> bool:
        """Return what was set about it."""
        return read(self._configuration, _COMPRESSION)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Accept it: how state is compressed is up to its backend."""
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
