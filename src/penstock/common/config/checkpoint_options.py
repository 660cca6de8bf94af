"""Options of checkpoints, savepoints and restores, with Flink's keys and defaults."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option_kinds import (
    BOOLEAN,
    DIRECTORY_NAME,
    LOCATION,
    NON_NEGATIVE_DURATION,
    NON_NEGATIVE_INTEGER,
    POSITIVE_INTEGER,
    at_least,
    choice,
)
from penstock.common.config_options import ConfigOption
from penstock.common.storage_url import Location

_TEN_MILLISECONDS = at_least(timedelta(milliseconds=10), 'a duration of at least "10 ms"')

JOB_ID: ConfigOption[str | None] = ConfigOption(
    "penstock.job-id",
    DIRECTORY_NAME,
    None,
    "Id of the job and name of its directory; derived from the job's name if unset.",
)
CHECKPOINT_INTERVAL: ConfigOption[timedelta | None] = ConfigOption(
    "execution.checkpointing.interval",
    _TEN_MILLISECONDS,
    None,
    "Time from one checkpoint to the next; no periodic checkpoints if unset.",
)
CHECKPOINT_RECORDS: ConfigOption[int | None] = ConfigOption(
    "penstock.checkpoint.records",
    POSITIVE_INTEGER,
    None,
    "Records of all sources from one checkpoint to the next; can be combined with the interval.",
)
CHECKPOINTING_MODE = ConfigOption(
    "execution.checkpointing.mode",
    choice("EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"),
    "EXACTLY_ONCE",
    "How often a record counts after a failure: exactly once, at least once, or at most once.",
)
CHECKPOINT_TIMEOUT = ConfigOption(
    "execution.checkpointing.timeout",
    _TEN_MILLISECONDS,
    timedelta(minutes=10),
    "How long a checkpoint may take before it is aborted.",
)
MIN_PAUSE = ConfigOption(
    "execution.checkpointing.min-pause",
    NON_NEGATIVE_DURATION,
    timedelta(),
    "Minimum time between the end of one checkpoint and the trigger of the next periodic one.",
)
MAX_CONCURRENT_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    POSITIVE_INTEGER,
    1,
    "Checkpoints in flight at once; savepoints do not count.",
)
UNALIGNED_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    BOOLEAN,
    False,
    "Whether barriers overtake records, which are stored with the checkpoint as in-flight data.",
    fallback_keys=("execution.checkpointing.unaligned",),
)
ALIGNED_CHECKPOINT_TIMEOUT = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    NON_NEGATIVE_DURATION,
    timedelta(),
    "How long an unaligned checkpoint tries to align first; 0 to overtake at once.",
    fallback_keys=("execution.checkpointing.alignment-timeout",),
)
TOLERABLE_FAILED_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    NON_NEGATIVE_INTEGER,
    0,
    "Consecutive checkpoint failures before the job fails.",
)
RETAINED_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.num-retained",
    POSITIVE_INTEGER,
    1,
    "Number of completed checkpoints to retain.",
    fallback_keys=("state.checkpoints.num-retained",),
)
CHECKPOINT_RETENTION = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "Whether completed checkpoints are retained when the job is cancelled.",
)
CHECKPOINT_DIR: ConfigOption[Location | None] = ConfigOption(
    "execution.checkpointing.dir",
    LOCATION,
    None,
    "Directory of checkpoints; without one they are lost with the driver.",
    fallback_keys=("state.checkpoints.dir",),
)
SAVEPOINT_DIR: ConfigOption[Location | None] = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    LOCATION,
    None,
    "Default directory of savepoints.",
    fallback_keys=("state.savepoints.dir",),
)
CHECKPOINT_STORAGE: ConfigOption[str | None] = ConfigOption(
    "execution.checkpointing.storage",
    choice("jobmanager", "filesystem"),
    None,
    "Where the state of a checkpoint is stored: in its metadata, or in separate files; filesystem "
    "if a directory is set, else jobmanager.",
    fallback_keys=("state.checkpoint-storage",),
)
INCREMENTAL_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.incremental",
    BOOLEAN,
    False,
    "Whether a rocksdb checkpoint uploads only files that the previous one does not have.",
    fallback_keys=("state.backend.incremental",),
)
STATE_SNAPSHOT = ConfigOption(
    "penstock.state.snapshot",
    choice(
        "asynchronous",
        "synchronous",
        aliases={"true": "asynchronous", "false": "synchronous"},
    ),
    "asynchronous",
    "Whether a stage continues while its snapshot is made durable, or waits for it.",
    fallback_keys=("state.backend.async",),
)
RESTORE_PATH: ConfigOption[Location | None] = ConfigOption(
    "execution.state-recovery.path",
    LOCATION,
    None,
    "Savepoint or checkpoint to start the job from.",
    fallback_keys=("execution.savepoint.path",),
)
CLAIM_MODE = ConfigOption(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whether the job may delete the snapshot it starts from.",
    fallback_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    False,
    "Whether state of steps that the program no longer has may be dropped.",
    fallback_keys=("execution.savepoint.ignore-unclaimed-state",),
)
ACCEPT_DUPLICATES = ConfigOption(
    "penstock.recovery.accept-duplicates",
    BOOLEAN,
    False,
    "Whether an older checkpoint may be restored although sinks may have committed later output.",
)
ALLOW_PICKLE = ConfigOption(
    "penstock.restore.allow-pickle",
    BOOLEAN,
    False,
    "Whether a snapshot with pickled data, which can run code, may be restored from outside of the "
    "job's own checkpoint and savepoint directories.",
)
FRESH = ConfigOption(
    "penstock.recovery.fresh",
    BOOLEAN,
    False,
    "Whether a job that died, failed or was stopped starts from scratch; its snapshots are kept.",
)
COMMITTER_RETRIES = ConfigOption(
    "sink.committer.retries",
    NON_NEGATIVE_INTEGER,
    10,
    "How often a commit that requests it is retried before the job fails.",
)
CHECKPOINT_HISTORY = ConfigOption(
    "web.checkpoints.history",
    NON_NEGATIVE_INTEGER,
    10,
    "Number of checkpoints whose statistics are kept.",
)
