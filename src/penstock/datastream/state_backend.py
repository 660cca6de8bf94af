"""Where state lives while a job runs, as a program names it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.common.checkpoint_options import INCREMENTAL_CHECKPOINTS
from penstock.common.configuration import Configuration
from penstock.common.known_options import STATE_BACKEND, STATE_LOCAL_DIR
from penstock.datastream.not_yet import AsksForPyFlink
from penstock.errors import ConfigurationError

__all__ = ["EmbeddedRocksDBStateBackend", "HashMapStateBackend", "StateBackend"]


class StateBackend(AsksForPyFlink, ABC):
    """PyFlink's name for some configuration keys; for `set_state_backend` of an environment."""

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


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps state on the disks of the hosts, so it may be larger than memory."""

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing not in (None, True, False):
            message = (
                "enable_incremental_checkpointing needs True, False or None; got "
                f"{enable_incremental_checkpointing!r}"
            )
            raise TypeError(message)
        self._incremental = enable_incremental_checkpointing
        self._path: str | None = None

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the directory of a host's own files; no path goes back to the default."""
        if len(paths) > 1:
            message = (
                f"state is kept in one directory per host; got {len(paths)} paths, give one of them"
            )
            raise ConfigurationError(message)
        self._path = paths[0] if paths else None

    def get_db_storage_paths(self) -> list[str]:
        """Return the directory that was set, if any."""
        return [] if self._path is None else [self._path]

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Tell whether this backend asks for incremental checkpoints."""
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
