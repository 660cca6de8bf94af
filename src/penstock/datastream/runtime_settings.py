"""The settings of an execution environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from penstock.common.config.known_options import MAX_PARALLELISM, PARALLELISM, overlay, validate
from penstock.common.config.option_kinds import BOOLEAN
from penstock.common.config.pipeline_options import OPERATOR_CHAINING, PYTHON_FILES
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.datastream.streams.step import at_least_one
from penstock.errors import InvalidJobError

__all__ = ["RuntimeSettings"]

_CHANGELOG = ConfigOption("state.changelog.enabled", BOOLEAN, False)
_FLINKS_BUFFER_TIMEOUT = 100


class RuntimeSettings(ExplainsMissingMethods):
    """The settings of an environment; those with an effect are in its configuration."""

    def __init__(self) -> None:
        self._configuration = Configuration()
        self._buffer_timeout = _FLINKS_BUFFER_TIMEOUT
        self._default_parallelism: int | None = None

    def configure(self, configuration: Configuration) -> None:
        """Apply settings; unknown keys are rejected.

        Raises:
            ConfigurationError: a key is unknown (the nearest known one is named) or a value
                is not of its kind.
        """
        validate(configuration)
        overlay(self._configuration, configuration)

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings, for reading and changing."""
        return ExecutionConfig(self._configuration)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the default parallelism of steps."""
        self._configuration.set(PARALLELISM, at_least_one("parallelism", parallelism))
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism: the setting, else the number of cores."""
        return read(self._configuration, PARALLELISM) or self.get_default_local_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the default max parallelism of steps, which is their number of key groups."""
        self._configuration.set(MAX_PARALLELISM, at_least_one("max parallelism", max_parallelism))
        return self

    def get_max_parallelism(self) -> int:
        """Return the default max parallelism, -1 if it is derived from the parallelism."""
        return read(self._configuration, MAX_PARALLELISM)

    def get_default_local_parallelism(self) -> int:
        """Return the parallelism that is used if none is set: the cores of this machine."""
        return self._default_parallelism or cores()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the parallelism that is used if none is set."""
        self._default_parallelism = at_least_one("parallelism", parallelism)

    def disable_operator_chaining(self) -> Self:
        """Run every step in its own stage."""
        self._configuration.set(OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Tell whether steps without an exchange between them share a stage."""
        return read(self._configuration, OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Tell that steps of different max parallelism may share a stage."""
        return True

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Accepted without effect: records are flushed with each micro-batch."""
        self._buffer_timeout = timeout_millis
        return self

    def get_buffer_timeout(self) -> int:
        """Return the setting."""
        return self._buffer_timeout

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accepted without effect: all slots of Spark are alike."""
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            message = f"this needs a SlotSharingGroup; got {slot_sharing_group!r}"
            raise InvalidJobError(message)
        return self

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted without effect: every backend has a base and a changelog."""
        self._configuration.set(_CHANGELOG, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the setting, None if there is none."""
        if not self._configuration.contains_key(_CHANGELOG.key):
            return None
        return read(self._configuration, _CHANGELOG)

    def add_python_file(self, file_path: str) -> None:
        """Add a Python file, directory, zip or wheel that every worker can import from."""
        files = read(self._configuration, PYTHON_FILES)
        path = os.fspath(file_path)
        absolute = path if "://" in path else str(Path(path).absolute())
        self._configuration.set(PYTHON_FILES, [*files, absolute])

    def add_jars(self, *jars_path: str) -> None:
        """Accepted without effect, with a warning: jars of Flink are not loaded."""
        self.configure(Configuration().set_string("pipeline.jars", ";".join(jars_path)))

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted without effect, with a warning: class paths of Flink are not loaded."""
        self.configure(Configuration().set_string("pipeline.classpaths", ";".join(classpaths)))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
