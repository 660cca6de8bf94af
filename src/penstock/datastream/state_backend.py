"""PyFlink's state backends."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from penstock.common.config.checkpoint_options import INCREMENTAL_CHECKPOINTS
from penstock.common.config.known_options import STATE_BACKEND, STATE_LOCAL_DIR
from penstock.common.configuration import Configuration
from penstock.common.pyflink.missing_names import ExplainsMissingMethods, missing_name_getattr
from penstock.errors import ConfigurationError

__all__ = [
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]

logger = logging.getLogger("penstock.datastream")

_FLINKS_THREADS = 4


class StateBackend(ExplainsMissingMethods, ABC):
    """A set of configuration keys, for `StreamExecutionEnvironment.set_state_backend`."""

    @abstractmethod
    def to_configuration(self) -> Configuration:
        """Return the backend as configuration keys."""


class HashMapStateBackend(StateBackend):
    """Keeps state in the memory of the hosts."""

    def to_configuration(self) -> Configuration:
        """Return the backend as configuration keys."""
        return Configuration().set(STATE_BACKEND, "hashmap")

    def __str__(self) -> str:
        return "HashMapStateBackend"


class PredefinedOptions(Enum):
    """Flink's predefined RocksDB options: stored without effect."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps state on the disks of the hosts, so it may be larger than memory.

    Settings that tune Flink's own RocksDB have no effect, and are logged with one warning.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            message = (
                "enable_incremental_checkpointing needs True, False or None; got "
                f"{enable_incremental_checkpointing!r}"
            )
            raise TypeError(message)
        self._incremental = enable_incremental_checkpointing
        self._path: str | None = None
        self._predefined = PredefinedOptions.DEFAULT
        self._options_factory: str | None = None
        self._transfer_threads = _FLINKS_THREADS
        self._is_tuned = False

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directory of each host; without a path, the default."""
        if len(paths) > 1:
            message = (
                f"state is kept in one directory per host; got {len(paths)} paths, set one of them"
            )
            raise ConfigurationError(message)
        self._path = paths[0] if paths else None

    def get_db_storage_paths(self) -> list[str]:
        """Return the setting, if any."""
        return [] if self._path is None else [self._path]

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Store Flink's predefined options, without effect."""
        self._predefined = options
        self._tune("set_predefined_options")

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the setting."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Store the name of a Java class, without effect."""
        self._options_factory = options_factory_class_name
        self._tune("set_options")

    def get_options(self) -> str | None:
        """Return the setting, if any."""
        return self._options_factory

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Store the number of transfer threads, without effect."""
        self._transfer_threads = number_of_transfering_threads
        self._tune("set_number_of_transfer_threads")

    def get_number_of_transfer_threads(self) -> int:
        """Return the setting, or Flink's default."""
        return self._transfer_threads

    def _tune(self, method: str) -> None:
        if not self._is_tuned:
            logger.warning("%s() tunes Flink's RocksDB and has no effect", method)
        self._is_tuned = True

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Tell whether incremental checkpoints are enabled."""
        return bool(self._incremental)

    def to_configuration(self) -> Configuration:
        """Return the backend as configuration keys."""
        settings = Configuration().set(STATE_BACKEND, "rocksdb")
        if self._incremental is not None:
            settings.set(INCREMENTAL_CHECKPOINTS, self._incremental)
        if self._path is not None:
            settings.set(STATE_LOCAL_DIR, self._path)
        return settings

    def __str__(self) -> str:
        return (
            f"EmbeddedRocksDBStateBackend(incremental={self.is_incremental_checkpoints_enabled()})"
        )


if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
