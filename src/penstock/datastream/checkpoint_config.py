"""PyFlink's object of checkpoint settings: a view of the environment's configuration."""

from __future__ import annotations

from datetime import timedelta

from penstock.common import checkpoint_options as options
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.common.known_options import overlay, validate
from penstock.common.option_kinds import BOOLEAN
from penstock.common.time import Duration
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

__all__ = ["CheckpointConfig"]

_ANY_NUMBER = 2**31 - 1

# A word Flink knows and penstock keeps without acting on it.
_FORCE_UNALIGNED = ConfigOption("execution.checkpointing.unaligned.forced", BOOLEAN, False)


class CheckpointConfig:
    """Reads and writes the `execution.checkpointing.*` keys of one environment.

    There is no second truth: what is set here is in the configuration, and the other way
    round. Times are milliseconds.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Tell whether checkpoints are taken by time or by records."""
        return (
            read(self._configuration, options.CHECKPOINT_INTERVAL) is not None
            or read(self._configuration, options.CHECKPOINT_RECORDS) is not None
        )

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee."""
        return CheckpointingMode[read(self._configuration, options.CHECKPOINTING_MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Choose the guarantee."""
        return self._set(options.CHECKPOINTING_MODE, checkpointing_mode.name)

    def get_checkpoint_interval(self) -> int:
        """Return the time from one checkpoint to the next, -1 if there is none."""
        interval = read(self._configuration, options.CHECKPOINT_INTERVAL)
        return -1 if interval is None else _millis(interval)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the time from one checkpoint to the next, at least 10 ms."""
        return self._set(options.CHECKPOINT_INTERVAL, f"{checkpoint_interval} ms")

    def get_checkpoint_timeout(self) -> int:
        """Return how long a checkpoint may take."""
        return _millis(read(self._configuration, options.CHECKPOINT_TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set how long a checkpoint may take, at least 10 ms."""
        return self._set(options.CHECKPOINT_TIMEOUT, f"{checkpoint_timeout} ms")

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least time between one checkpoint's end and the next one's trigger."""
        return _millis(read(self._configuration, options.MIN_PAUSE))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Set the least time between one checkpoint's end and the next one's trigger."""
        return self._set(options.MIN_PAUSE, f"{min_pause_between_checkpoints} ms")

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in flight."""
        return read(self._configuration, options.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many checkpoints may be in flight."""
        return self._set(options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Tell whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Let the first failed checkpoint fail the job, or none."""
        number = 0 if fail_on_checkpointing_errors else _ANY_NUMBER
        return self.set_tolerable_checkpoint_failure_number(number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many checkpoints may fail in a row."""
        return read(self._configuration, options.TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many checkpoints may fail in a row."""
        return self._set(options.TOLERABLE_FAILED_CHECKPOINTS, tolerable_checkpoint_failure_number)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose what becomes of checkpoints when the job is cancelled."""
        return self._set(options.CHECKPOINT_RETENTION, retention_mode.name)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Tell whether checkpoints may outlive the job."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return what becomes of checkpoints when the job is cancelled."""
        name = read(self._configuration, options.CHECKPOINT_RETENTION)
        return ExternalizedCheckpointRetention[name]

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Choose where checkpoints go; PyFlink had this before 2.0."""
        return self._take(storage.to_configuration())

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory of checkpoints; PyFlink had this before 2.0."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return where checkpoints go, None if nothing says so."""
        storage = read(self._configuration, options.CHECKPOINT_STORAGE)
        directory = read(self._configuration, options.CHECKPOINT_DIR)
        path = None if directory is None else str(directory)
        if storage == "jobmanager":
            return JobManagerCheckpointStorage(path)
        return None if path is None else FileSystemCheckpointStorage(path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether barriers overtake records: turned on, with EXACTLY_ONCE and checkpoints."""
        return (
            self.is_checkpointing_enabled()
            and self.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
            and read(self._configuration, options.UNALIGNED_CHECKPOINTS)
        )

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records, which are stored with the checkpoint instead.

        It goes only with EXACTLY_ONCE and one concurrent checkpoint; `execute` refuses the rest.
        """
        return self._set(options.UNALIGNED_CHECKPOINTS, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers wait for the records before them."""
        return self.enable_unaligned_checkpoints(False)

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Keep the word that iterations may be unaligned too; there are none here."""
        self._configuration.set(_FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set, False if nothing was."""
        return read(self._configuration, _FORCE_UNALIGNED)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Set how long an unaligned checkpoint tries to align before barriers overtake; 0: not.

        It means nothing unless `enable_unaligned_checkpoints` was called.
        """
        millis = alignment_timeout.to_millis()
        return self._set(options.ALIGNED_CHECKPOINT_TIMEOUT, f"{millis} ms")

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return how long an unaligned checkpoint tries to align."""
        timeout = read(self._configuration, options.ALIGNED_CHECKPOINT_TIMEOUT)
        return Duration.of_millis(_millis(timeout))

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Do as `set_aligned_checkpoint_timeout`; the older name."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Do as `get_aligned_checkpoint_timeout`; the older name."""
        return self.get_aligned_checkpoint_timeout()

    def _set(self, option: ConfigOption[object], value: object) -> CheckpointConfig:
        return self._take(Configuration().set(option, value))

    def _take(self, settings: Configuration) -> CheckpointConfig:
        validate(settings)
        overlay(self._configuration, settings)
        return self


def _millis(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
