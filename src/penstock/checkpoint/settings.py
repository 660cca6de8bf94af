"""The settings of checkpoints and recovery, read from the configuration once per job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from penstock.common.config import checkpoint_options as checkpoints
from penstock.common.config import recovery_options as recovery
from penstock.common.config.locations import parse_location
from penstock.common.config_options import ConfigOption, read
from penstock.common.configuration import Configuration
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import ConfigurationError
from penstock.storage.storage_options import storage_options


class Guarantee(Enum):
    """How often a record affects state and output when the job fails and recovers."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    """Once."""
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
    """Once or more; barriers block no input."""
    AT_MOST_ONCE = "AT_MOST_ONCE"
    """Once or not at all; sources are not rewound."""


class Retention(Enum):
    """What happens to completed checkpoints when the job is cancelled."""

    NO_EXTERNALIZED = "NO_EXTERNALIZED_CHECKPOINTS"
    """They are deleted with the job."""
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    """They are deleted, but stay when the job fails."""
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    """They stay."""


class ClaimMode(Enum):
    """Who owns the snapshot that a job starts from."""

    NO_CLAIM = "NO_CLAIM"
    """The user: none of its files is deleted, and the first checkpoint is full."""
    CLAIM = "CLAIM"
    """The job: it is deleted when it is subsumed."""


class StorageKind(Enum):
    """Where the state of a checkpoint is stored."""

    JOBMANAGER = "jobmanager"
    """In the metadata, which is in memory unless a directory is set."""
    FILESYSTEM = "filesystem"
    """In files of its own."""


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """The settings of one job; times in seconds.

    `enabled` says whether checkpoints are periodic; savepoints can be requested in any case.
    `unaligned` never applies to savepoints; `aligned_timeout_s` applies only with it.
    """

    enabled: bool
    interval_s: float | None
    records: int | None
    mode: Guarantee
    timeout_s: float
    min_pause_s: float
    max_concurrent: int
    unaligned: bool
    aligned_timeout_s: float
    tolerable_failures: int
    retained: int
    retention: Retention
    storage: StorageKind
    directory: Location | None
    savepoint_directory: Location | None
    incremental: bool
    synchronous: bool
    restore_path: Location | None
    claim_mode: ClaimMode
    allow_non_restored_state: bool
    committer_retries: int
    accept_duplicates: bool
    allow_pickle: bool
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    job_id: str | None
    exception_history: int
    max_exception_text: int
    checkpoint_history: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How stores are reached; may hold credentials."""

    def locate(self, text: str) -> Location:
        """Return the place that a user's path or URL names.

        Raises:
            ValueError: there can be no such place.
        """
        return parse_location(text, self.storage_options)


def read_checkpoint_settings(
    configuration: Configuration, *, batch_mode: bool = False
) -> CheckpointSettings:
    """Read the settings; a job in BATCH mode takes no checkpoints, as in Flink.

    Raises:
        ConfigurationError: two settings contradict each other, or a value is invalid.
    """

    def seconds(option: ConfigOption[timedelta]) -> float:
        return read(configuration, option).total_seconds()

    options = storage_options(configuration)

    def location(option: ConfigOption[Location | None]) -> Location | None:
        found = read(configuration, option)
        return found.with_options(options) if isinstance(found, StorageUrl) else found

    interval = read(configuration, checkpoints.CHECKPOINT_INTERVAL)
    records = read(configuration, checkpoints.CHECKPOINT_RECORDS)
    settings = CheckpointSettings(
        enabled=not batch_mode and (interval is not None or records is not None),
        interval_s=None if interval is None else interval.total_seconds(),
        records=records,
        mode=Guarantee(read(configuration, checkpoints.CHECKPOINTING_MODE)),
        timeout_s=seconds(checkpoints.CHECKPOINT_TIMEOUT),
        min_pause_s=seconds(checkpoints.MIN_PAUSE),
        max_concurrent=read(configuration, checkpoints.MAX_CONCURRENT_CHECKPOINTS),
        unaligned=not batch_mode and read(configuration, checkpoints.UNALIGNED_CHECKPOINTS),
        aligned_timeout_s=seconds(checkpoints.ALIGNED_CHECKPOINT_TIMEOUT),
        tolerable_failures=read(configuration, checkpoints.TOLERABLE_FAILED_CHECKPOINTS),
        retained=read(configuration, checkpoints.RETAINED_CHECKPOINTS),
        retention=Retention(read(configuration, checkpoints.CHECKPOINT_RETENTION)),
        storage=_storage(configuration),
        directory=location(checkpoints.CHECKPOINT_DIR),
        savepoint_directory=location(checkpoints.SAVEPOINT_DIR),
        incremental=read(configuration, checkpoints.INCREMENTAL_CHECKPOINTS),
        synchronous=read(configuration, checkpoints.STATE_SNAPSHOT) == "synchronous",
        restore_path=location(checkpoints.RESTORE_PATH),
        claim_mode=ClaimMode(read(configuration, checkpoints.CLAIM_MODE)),
        allow_non_restored_state=read(configuration, checkpoints.IGNORE_UNCLAIMED_STATE),
        committer_retries=read(configuration, checkpoints.COMMITTER_RETRIES),
        accept_duplicates=read(configuration, checkpoints.ACCEPT_DUPLICATES),
        allow_pickle=read(configuration, checkpoints.ALLOW_PICKLE),
        heartbeat_interval_s=seconds(recovery.HEARTBEAT_INTERVAL),
        heartbeat_timeout_s=seconds(recovery.HEARTBEAT_TIMEOUT),
        job_id=read(configuration, checkpoints.JOB_ID),
        exception_history=read(configuration, recovery.EXCEPTION_HISTORY),
        max_exception_text=read(configuration, recovery.MAX_EXCEPTION_TEXT),
        checkpoint_history=read(configuration, checkpoints.CHECKPOINT_HISTORY),
        storage_options=options,
    )
    for contradiction in _contradictions(settings):
        raise ConfigurationError(contradiction)
    return settings


def _storage(configuration: Configuration) -> StorageKind:
    chosen = read(configuration, checkpoints.CHECKPOINT_STORAGE)
    if chosen is not None:
        return StorageKind(chosen)
    directory = read(configuration, checkpoints.CHECKPOINT_DIR)
    return StorageKind.JOBMANAGER if directory is None else StorageKind.FILESYSTEM


def _contradictions(settings: CheckpointSettings) -> list[str]:
    found = []
    directory_key = checkpoints.CHECKPOINT_DIR.key
    if settings.directory is None and settings.storage is StorageKind.FILESYSTEM:
        found.append(
            f"{checkpoints.CHECKPOINT_STORAGE.key} is filesystem, and no directory is set; "
            f"set {directory_key}"
        )
    if settings.directory is None and settings.retention is not Retention.NO_EXTERNALIZED:
        found.append(
            f"{checkpoints.CHECKPOINT_RETENTION.key} is {settings.retention.value}, and "
            f"checkpoints without a directory cannot outlive the job; set {directory_key}"
        )
    if settings.unaligned and settings.mode is not Guarantee.EXACTLY_ONCE:
        found.append(
            f"{checkpoints.UNALIGNED_CHECKPOINTS.key} is true, and "
            f"{checkpoints.CHECKPOINTING_MODE.key} is {settings.mode.value}; barriers block "
            f"inputs only in EXACTLY_ONCE, so choose that or turn unaligned checkpoints off"
        )
    if settings.unaligned and settings.max_concurrent > 1:
        found.append(
            f"{checkpoints.UNALIGNED_CHECKPOINTS.key} is true, and "
            f"{checkpoints.MAX_CONCURRENT_CHECKPOINTS.key} is {settings.max_concurrent}; an "
            f"unaligned checkpoint must be the only pending one, so set it to 1"
        )
    if settings.heartbeat_timeout_s <= settings.heartbeat_interval_s:
        found.append(
            f"{recovery.HEARTBEAT_TIMEOUT.key} must be longer than "
            f"{recovery.HEARTBEAT_INTERVAL.key}, or a running driver is taken for dead; got "
            f"{settings.heartbeat_timeout_s:g} s and {settings.heartbeat_interval_s:g} s"
        )
    return found
