"""PyFlink's checkpoint storages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.common.config import checkpoint_options as options
from penstock.common.configuration import Configuration
from penstock.common.pyflink.missing_names import missing_name_getattr

__all__ = ["CheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]


_FLINKS_THRESHOLD = 20 * 1024
_FLINKS_BUFFER = 4096


class CheckpointStorage(ABC):
    """A set of configuration keys, for `CheckpointConfig.set_checkpoint_storage`."""

    @abstractmethod
    def to_configuration(self) -> Configuration:
        """Return the storage as configuration keys."""


class JobManagerCheckpointStorage(CheckpointStorage):
    """Stores the state in a checkpoint's metadata, for small state.

    Without a path this is the driver's memory, and checkpoints are lost with the driver.
    `max_state_size` has no effect.
    """

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        self._path = checkpoint_path
        self._max_state_size = max_state_size or self.DEFAULT_MAX_STATE_SIZE

    def get_checkpoint_path(self) -> str | None:
        """Return the directory of the metadata, None for memory."""
        return None if self._path is None else _without_slash(self._path)

    def get_max_state_size(self) -> int:
        """Return the setting, or Flink's default."""
        return self._max_state_size

    def get_savepoint_path(self) -> None:
        """Return None: the directory of savepoints is a setting of the environment."""
        return

    def to_configuration(self) -> Configuration:
        """Return the storage as configuration keys."""
        settings = Configuration().set(options.CHECKPOINT_STORAGE, "jobmanager")
        if self._path is not None:
            settings.set(options.CHECKPOINT_DIR, self._path)
        return settings


class FileSystemCheckpointStorage(CheckpointStorage):
    """Stores the state in files in a directory that driver and executors share.

    The other arguments have no effect.
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if checkpoint_path is None:
            message = "a FileSystemCheckpointStorage needs a checkpoint_path; got None"
            raise ValueError(message)
        self._path = checkpoint_path
        self._threshold = file_state_size_threshold
        self._buffer_size = write_buffer_size

    def get_checkpoint_path(self) -> str:
        """Return the directory."""
        return _without_slash(self._path)

    def get_min_file_size_threshold(self) -> int:
        """Return the setting, or Flink's default."""
        return _FLINKS_THRESHOLD if self._threshold is None else self._threshold

    def get_write_buffer_size(self) -> int:
        """Return the setting, or Flink's default."""
        if self._buffer_size >= 0:
            return self._buffer_size
        return max(self.get_min_file_size_threshold(), _FLINKS_BUFFER)

    def get_savepoint_path(self) -> None:
        """Return None: the directory of savepoints is a setting of the environment."""
        return

    def to_configuration(self) -> Configuration:
        """Return the storage as configuration keys."""
        settings = Configuration().set(options.CHECKPOINT_STORAGE, "filesystem")
        return settings.set(options.CHECKPOINT_DIR, self._path)


def _without_slash(path: str) -> str:
    """Return a path as Flink returns it: without a slash at its end, unless it is a root."""
    stripped = path.rstrip("/")
    return path if not stripped or stripped.endswith(":") else stripped


if not TYPE_CHECKING:  # so that type checkers report misspelled names
    __getattr__ = missing_name_getattr(__name__)
