"""The settings of a server that runs programs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.common.config.checkpoint_options import CHECKPOINT_DIR, FRESH, JOB_ID, RESTORE_PATH
from penstock.common.config.recovery_options import HEARTBEAT_TIMEOUT
from penstock.common.config.submission_options import (
    MAX_LOG_BYTES,
    MAX_PROGRAM_BYTES,
    RETAINED_STARTS,
    START_TIMEOUT,
    UPLOAD_DIR,
)
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.common.storage_url import Location
from penstock.storage.storage_options import storage_options

_OF_ONE_JOB: tuple[ConfigOption[object], ...] = (CHECKPOINT_DIR, FRESH, JOB_ID, RESTORE_PATH)
_OF_THE_SERVER = "penstock.serve."


@dataclass(frozen=True, slots=True)
class SubmissionSettings:
    """What a server needs to run programs."""

    directory: Location
    """The checkpoint directory of all jobs."""
    upload_dir: Path
    heartbeat_timeout_s: float
    max_program_bytes: int
    max_log_bytes: int
    retained_starts: int
    start_timeout_s: float
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    job_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the server that jobs get, too, unless a request overrides them."""

    @classmethod
    def read(cls, configuration: Configuration, directory: Location) -> SubmissionSettings:
        """Return what a configuration says; jobs get the rest of it, as in a Flink cluster.

        Raises:
            OptionValueError: a value cannot be used.
        """
        own = {key for o in _OF_ONE_JOB for key in (o.key, *o.fallback_keys)}
        return cls(
            directory=directory,
            upload_dir=read(configuration, UPLOAD_DIR) or default_upload_dir(directory),
            heartbeat_timeout_s=read(configuration, HEARTBEAT_TIMEOUT).total_seconds(),
            max_program_bytes=read(configuration, MAX_PROGRAM_BYTES),
            max_log_bytes=read(configuration, MAX_LOG_BYTES),
            retained_starts=read(configuration, RETAINED_STARTS),
            start_timeout_s=read(configuration, START_TIMEOUT).total_seconds(),
            storage_options=storage_options(configuration),
            job_settings={
                key: value
                for key, value in configuration.to_dict().items()
                if key not in own and not key.startswith(_OF_THE_SERVER)
            },
        )


def default_upload_dir(directory: Location) -> Path:
    """Return a directory of this user on this machine, another one for each checkpoint directory.

    The next server for the same checkpoint directory finds there what this one has started.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.blake2b(str(directory).encode(), digest_size=6).hexdigest()
    return Path(state).absolute() / "penstock" / f"serve-{digest}"
