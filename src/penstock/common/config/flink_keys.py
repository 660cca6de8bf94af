"""Flink's configuration keys without effect in penstock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_TRACKING = "keyed-state-enabled sample-interval history-size state-name-as-variable"

# A prefix, and the rest of each key under it.
_GROUPS: Mapping[str, str] = {
    "execution.checkpointing.": """
        checkpoints-after-tasks-finish checkpoints-after-tasks-finish.enabled
        interval-during-backlog sync-phase-timeout create-subdir data-inline-threshold
        write-buffer-size snapshot-compression during-recovery.enabled
        cleaner.parallel-mode local-backup.enabled local-backup.dirs
    """,
    "execution.checkpointing.unaligned.": """
        forced max-subtasks-per-channel-state-file interruptible-timers.enabled
        interruptible-timers.emit-intermediate-watermarks recover-output-on-downstream.enabled
    """,
    "execution.checkpointing.file-merging.": """
        enabled across-checkpoint-boundary pool-blocking max-file-size max-space-amplification
        max-subtasks-per-file
    """,
    "execution.state-recovery.": """
        from-local without-channel-state.checkpoint-id approximate-local-recovery
    """,
    "execution.": """
        attached target buffer-timeout buffer-timeout.enabled buffer-timeout.interval
    """,
    "pipeline.": """
        sources.pause-until-first-checkpoint
        object-reuse jars classpaths generic-types force-kryo force-avro closure-cleaner-level
    """,
    "state.changelog.": """
        enabled storage periodic-materialize.enabled periodic-materialize.interval
        max-failures-allowed dstl.dfs.base-path dstl.dfs.compression.enabled
        dstl.dfs.preemptive-persist-threshold dstl.dfs.batch.persist-delay
        dstl.dfs.batch.persist-size-threshold dstl.dfs.discard.num-threads
        dstl.dfs.download.local-cache.idle-timeout-ms
    """,
    "state.changelog.dstl.dfs.upload.": """
        timeout max-attempts retry-policy next-attempt-delay buffer-size max-in-flight num-threads
    """,
    "state.latency-track.": _TRACKING,
    "state.size-track.": _TRACKING,
    "state.backend.rocksdb.": """
        checkpoint.transfer.thread.num localdir options-factory predefined-options
        memory.managed memory.fixed-per-slot memory.fixed-per-tm memory.write-buffer-ratio
        memory.high-prio-pool-ratio memory.partitioned-index-filters timer-service.factory
        timer-service.cache-size writebuffer.size writebuffer.count writebuffer.number-to-merge
        write-batch-size block.blocksize block.cache-size block.metadata-blocksize
        use-bloom-filter bloom-filter.bits-per-key bloom-filter.block-based-mode
        compaction.style compaction.level.max-size-level-base
        compaction.level.target-file-size-base compaction.level.use-dynamic-size
        compaction.filter.query-time-after-num-entries
        compaction.filter.periodic-compaction-time compression.per.level thread.num files.open
        use-ingest-db-restore-mode rescaling.use-delete-files-in-range
        restore-overlap-fraction-threshold incremental-restore-async-compact-after-rescale
        log.dir log.level log.file-num log.max-file-size
    """,
    "state.backend.rocksdb.manual-compaction.": """
        min-interval max-parallel-compactions max-file-size-to-compact min-files max-files
        max-output-file-size max-auto-compactions
    """,
    "state.backend.forst.": """
        primary-dir local-dir cache.dir cache.reserve-size cache.size-based-limit
        cache.lru.access-before-promote cache.lru.promote-limit executor.read-io-parallelism
        executor.write-io-parallelism executor.inline-write executor.inline-coordinator
        sync.enforce-local checkpoint.transfer-thread-num
    """,
    "heartbeat.": "rpc-failure-threshold",
    "jobmanager.execution.": "failover-strategy attempts-history-size",
}

_PREFIXES = (
    "classloader.",
    "env.",
    "jobmanager.",
    "metrics.",
    "python.",
    "rest.",
    "state.backend.forst.",
    "state.backend.rocksdb.metrics.",
    "table.",
    "task.",
    "taskmanager.",
    "web.",
)


def _all_keys() -> Iterator[str]:
    for prefix, rests in _GROUPS.items():
        for rest in rests.split():
            yield prefix + rest


FLINK_KEYS = frozenset(_all_keys())


def is_flink_key(key: str) -> bool:
    """Tell whether a key is Flink's, by itself or by its prefix."""
    return key in FLINK_KEYS or key.startswith(_PREFIXES)
