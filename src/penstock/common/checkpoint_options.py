"""Options of checkpoints, savepoints and what is restored; Flink's keys and defaults."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.common.config_options import ConfigOption
from penstock.common.option_kinds import (
    BOOLEAN,
    LOCAL_PATH,
    NAME_OF_A_DIRECTORY,
    NON_NEGATIVE_DURATION,
    NON_NEGATIVE_INTEGER,
    POSITIVE_INTEGER,
    at_least,
    choice,
)

__all__ = ["CHECKPOINT_OPTIONS"]

_TEN_MILLISECONDS = at_least(timedelta(milliseconds=10), 'a duration of at least "10 ms"')

JOB_ID: ConfigOption[str | None] = ConfigOption(
    "penstock.job-id",
    NAME_OF_A_DIRECTORY,
    None,
    "Id of the job, the name of its directory; made from the job's name if unset.",
)
CHECKPOINT_INTERVAL: ConfigOption[timedelta | None] = ConfigOption(
    "execution.checkpointing.interval",
    _TEN_MILLISECONDS,
    None,
    "Time from one checkpoint to the next; no checkpoints by time if unset.",
)
CHECKPOINT_RECORDS: ConfigOption[int | None] = ConfigOption(
    "penstock.checkpoint.records",
    POSITIVE_INTEGER,
    None,
    "Records of all sources from one checkpoint to the next; may be set beside the interval.",
)
CHECKPOINTING_MODE = ConfigOption(
    "execution.checkpointing.mode",
    choice("EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"),
    "EXACTLY_ONCE",
    "What a record may do after a failure: count once, more than once, or perhaps not at all.",
)
CHECKPOINT_TIMEOUT = ConfigOption(
    "execution.checkpointing.timeout",
    _TEN_MILLISECONDS,
    timedelta(minutes=10),
    "How long a checkpoint may take before it is given up.",
)
MIN_PAUSE = ConfigOption(
    "execution.checkpointing.min-pause",
    NON_NEGATIVE_DURATION,
    timedelta(),
    "Least time between the end of one checkpoint and the trigger of the next periodic one.",
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
    "Whether barriers overtake records, which are then stored with the checkpoint.",
    fallback_keys=("execution.checkpointing.unaligned",),
)
ALIGNED_CHECKPOINT_TIMEOUT = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    NON_NEGATIVE_DURATION,
    timedelta(),
    "How long an unaligned checkpoint tries to align first; 0 overtakes at once.",
    fallback_keys=("execution.checkpointing.alignment-timeout",),
)
TOLERABLE_FAILED_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    NON_NEGATIVE_INTEGER,
    0,
    "Checkpoints that may fail in a row before the job fails.",
)
RETAINED_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.num-retained",
    POSITIVE_INTEGER,
    1,
    "Completed checkpoints that are kept.",
    fallback_keys=("state.checkpoints.num-retained",),
)
CHECKPOINT_RETENTION = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    choice("NO_EXTERNALIZED_CHECKPOINTS", "DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"),
    "NO_EXTERNALIZED_CHECKPOINTS",
    "What becomes of completed checkpoints when the job is cancelled.",
)
CHECKPOINT_DIR: ConfigOption[Path | None] = ConfigOption(
    "execution.checkpointing.dir",
    LOCAL_PATH,
    None,
    "Directory of checkpoints; without one they die with the driver.",
    fallback_keys=("state.checkpoints.dir",),
)
SAVEPOINT_DIR: ConfigOption[Path | None] = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    LOCAL_PATH,
    None,
    "Directory of savepoints that are asked for without one.",
    fallback_keys=("state.savepoints.dir",),
)
CHECKPOINT_STORAGE: ConfigOption[str | None] = ConfigOption(
    "execution.checkpointing.storage",
    choice("jobmanager", "filesystem"),
    None,
    "Where the bytes of a checkpoint go: into its metadata, or into files of their own; "
    "filesystem if there is a directory, else jobmanager.",
    fallback_keys=("state.checkpoint-storage",),
)
INCREMENTAL_CHECKPOINTS = ConfigOption(
    "execution.checkpointing.incremental",
    BOOLEAN,
    False,
    "Whether a checkpoint of rocksdb stores only files that the one before does not have.",
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
    "Whether a stage goes on while its part of a checkpoint is made durable, or waits for it.",
    fallback_keys=("state.backend.async",),
)
RESTORE_PATH: ConfigOption[Path | None] = ConfigOption(
    "execution.state-recovery.path",
    LOCAL_PATH,
    None,
    "Savepoint or checkpoint the job starts from.",
    fallback_keys=("execution.savepoint.path",),
)
CLAIM_MODE = ConfigOption(
    "execution.state-recovery.claim-mode",
    choice("NO_CLAIM", "CLAIM"),
    "NO_CLAIM",
    "Whether what the job starts from stays its owner's, or is the job's to delete.",
    fallback_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    BOOLEAN,
    False,
    "Whether state of steps that the program no longer has may be left behind.",
    fallback_keys=("execution.savepoint.ignore-unclaimed-state",),
)
ACCEPT_DUPLICATES = ConfigOption(
    "penstock.recovery.accept-duplicates",
    BOOLEAN,
    False,
    "Whether an older checkpoint may be restored although sinks may have shown what came behind.",
)
FRESH = ConfigOption(
    "penstock.recovery.fresh",
    BOOLEAN,
    False,
    "Whether a job that died begins anew; its checkpoints are left alone.",
)
COMMITTER_RETRIES = ConfigOption(
    "sink.committer.retries",
    NON_NEGATIVE_INTEGER,
    10,
    "How often a commit that asks for it is tried again before the job fails.",
)
CHECKPOINT_HISTORY = ConfigOption(
    "web.checkpoints.history",
    NON_NEGATIVE_INTEGER,
    10,
    "Checkpoints whose facts are kept for reading.",
)

CHECKPOINT_OPTIONS: tuple[ConfigOption[Any], ...] = (
    JOB_ID,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_RECORDS,
    CHECKPOINTING_MODE,
    CHECKPOINT_TIMEOUT,
    MIN_PAUSE,
    MAX_CONCURRENT_CHECKPOINTS,
    UNALIGNED_CHECKPOINTS,
    ALIGNED_CHECKPOINT_TIMEOUT,
    TOLERABLE_FAILED_CHECKPOINTS,
    RETAINED_CHECKPOINTS,
    CHECKPOINT_RETENTION,
    CHECKPOINT_DIR,
    SAVEPOINT_DIR,
    CHECKPOINT_STORAGE,
    INCREMENTAL_CHECKPOINTS,
    STATE_SNAPSHOT,
    RESTORE_PATH,
    CLAIM_MODE,
    IGNORE_UNCLAIMED_STATE,
    ACCEPT_DUPLICATES,
    FRESH,
    COMMITTER_RETRIES,
    CHECKPOINT_HISTORY,
)
