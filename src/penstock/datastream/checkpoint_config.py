"""PyFlink's checkpoint settings: a view of the environment's configuration."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config import checkpoint_options as options
from penstock.common.config.known_options import overlay, validate
from penstock.common.config.option_kinds import BOOLEAN
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
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

# An option of Flink that is stored and has no effect.
_FORCE_UNALIGNED = ConfigOption("execution.checkpointing.unaligned.forced", BOOLEAN, False)


class CheckpointConfig:
    """Reads and writes the `execution.checkpointing.*` keys of one environment.

    All settings are stored in the configuration only. Times are milliseconds.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Tell whether checkpoints are triggered, by time or by records."""
        return (
            read(self._configuration, options.CHECKPOINT_INTERVAL) is not None
            or read(self._configuration, options.CHECKPOINT_RECORDS) is not None
        )

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the checkpointing mode."""
        return CheckpointingMode[read(self._configuration, options.CHECKPOINTING_MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the checkpointing mode."""
        return self._set(options.CHECKPOINTING_MODE, checkpointing_mode.name)

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval, -1 if there is none."""
        interval = read(self._configuration, options.CHECKPOINT_INTERVAL)
        return -1 if interval is None else _millis(interval)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the checkpoint interval, at least 10 ms."""
        return self._set(options.CHECKPOINT_INTERVAL, f"{checkpoint_interval} ms")

    def get_checkpoint_timeout(self) -> int:
        """Return the checkpoint timeout."""
        return _millis(read(self._configuration, options.CHECKPOINT_TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the checkpoint timeout, at least 10 ms."""
        return self._set(options.CHECKPOINT_TIMEOUT, f"{checkpoint_timeout} ms")

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the minimum pause between checkpoints."""
        return _millis(read(self._configuration, options.MIN_PAUSE))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> CheckpointConfig:
        """Set the minimum pause between the end of a checkpoint and the next trigger."""
        return self._set(options.MIN_PAUSE, f"{min_pause_between_checkpoints} ms")

    def get_max_concurrent_checkpoints(self) -> int:
        """Return the maximum number of concurrent checkpoints."""
        return read(self._configuration, options.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set the maximum number of concurrent checkpoints."""
        return self._set(options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Tell whether the first failed checkpoint fails the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Fail the job on the first failed checkpoint, or on none."""
        number = 0 if fail_on_checkpointing_errors else _ANY_NUMBER
        return self.set_tolerable_checkpoint_failure_number(number)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return the number of consecutive checkpoint failures to tolerate."""
        return read(self._configuration, options.TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set the number of consecutive checkpoint failures to tolerate."""
        return self._set(options.TOLERABLE_FAILED_CHECKPOINTS, tolerable_checkpoint_failure_number)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Set whether checkpoints are retained when the job is cancelled."""
        return self._set(options.CHECKPOINT_RETENTION, retention_mode.name)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Tell whether checkpoints may be retained after the job."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return whether checkpoints are retained when the job is cancelled."""
        name = read(self._configuration, options.CHECKPOINT_RETENTION)
        return ExternalizedCheckpointRetention[name]

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Set the checkpoint storage; in PyFlink before 2.0."""
        return self._apply(storage.to_configuration())

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Set the directory of checkpoints; in PyFlink before 2.0."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return the checkpoint storage, None if it is not set."""
        storage = read(self._configuration, options.CHECKPOINT_STORAGE)
        directory = read(self._configuration, options.CHECKPOINT_DIR)
        path = None if directory is None else str(directory)
        if storage == "jobmanager":
            return JobManagerCheckpointStorage(path)
        return None if path is None else FileSystemCheckpointStorage(path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Tell whether unaligned checkpoints are enabled, with EXACTLY_ONCE and checkpointing."""
        return (
            self.is_checkpointing_enabled()
            and self.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
            and read(self._configuration, options.UNALIGNED_CHECKPOINTS)
        )

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Let barriers overtake records, which are stored with the checkpoint.

        Only with EXACTLY_ONCE and one concurrent checkpoint; `execute` rejects anything else.
        """
        return self._set(options.UNALIGNED_CHECKPOINTS, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Let barriers wait for the records before them, which is the default."""
        return self.enable_unaligned_checkpoints(False)

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Accepted without effect: it is about iterations, which do not exist here."""
        self._configuration.set(_FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the setting, False by default."""
        return read(self._configuration, _FORCE_UNALIGNED)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Set how long an unaligned checkpoint tries to align before barriers overtake; 0 for not.

        Without effect unless unaligned checkpoints are enabled.
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
        return self._apply(Configuration().set(option, value))

    def _apply(self, settings: Configuration) -> CheckpointConfig:
        validate(settings)
        overlay(self._configuration, settings)
        return self


def _millis(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
