"""All configuration options, and the validation of a configuration."""

from __future__ import annotations

import logging
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from penstock.common.config import (
    checkpoint_options,
    pipeline_options,
    recovery_options,
    serve_options,
    source_options,
    submission_options,
)
from penstock.common.config.flink_keys import FLINK_KEYS, is_flink_key
from penstock.common.config.metric_options import ROCKSDB_METRICS
from penstock.common.config.option_kinds import (
    HOST_PATH,
    LOCAL_PATH,
    MEMORY_SIZE,
    POSITIVE_DURATION,
    POSITIVE_INTEGER,
    STRING,
    choice,
    integer,
)
from penstock.common.config_options import ConfigOption, parse
from penstock.common.configuration import Configuration
from penstock.errors import UnknownOptionError

_log = logging.getLogger(__name__)

_HIGHEST_MAX_PARALLELISM = 32768

PARALLELISM: ConfigOption[int | None] = ConfigOption(
    "parallelism.default",
    POSITIVE_INTEGER,
    None,
    "Subtasks of a step that sets no parallelism itself; the cores of this machine if unset.",
)
MAX_PARALLELISM = ConfigOption(
    "pipeline.max-parallelism",
    integer(
        f"a whole number from 1 to {_HIGHEST_MAX_PARALLELISM}, or -1",
        lambda number: number == -1 or 1 <= number <= _HIGHEST_MAX_PARALLELISM,
    ),
    -1,
    "Key groups, the upper bound of every parallelism; -1 derives it from the parallelism.",
)
PIPELINE_NAME: ConfigOption[str | None] = ConfigOption(
    "pipeline.name", STRING, None, "Name of the job."
)
RUNTIME_MODE = ConfigOption(
    "execution.runtime-mode",
    choice("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING",
    "Whether results are emitted as they change or once at the end.",
)
STATE_BACKEND = ConfigOption(
    "state.backend.type",
    choice(
        "hashmap", "rocksdb", "memory", aliases={"filesystem": "hashmap", "jobmanager": "memory"}
    ),
    "hashmap",
    "Where state lives while the job runs.",
    fallback_keys=("state.backend",),
)
MICRO_BATCH_TARGET_DURATION = ConfigOption(
    "penstock.micro-batch.target-duration",
    POSITIVE_DURATION,
    timedelta(seconds=1),
    "How long a micro-batch should take; its size adapts to it.",
)
MICRO_BATCH_MAX_RECORDS = ConfigOption(
    "penstock.micro-batch.max-records",
    POSITIVE_INTEGER,
    2_000_000,
    "Maximum number of records of a micro-batch.",
)
MICRO_BATCH_INITIAL_RECORDS = ConfigOption(
    "penstock.micro-batch.initial-records",
    POSITIVE_INTEGER,
    20_000,
    "Records of the first micro-batch, before its duration was measured.",
)
MICRO_BATCH_MAX_TRIES = ConfigOption(
    "penstock.micro-batch.max-tries",
    POSITIVE_INTEGER,
    3,
    "Attempts at one micro-batch before the job fails.",
)
EXCHANGE = ConfigOption(
    "penstock.exchange",
    choice("auto", "channel", "shuffle"),
    "auto",
    "How records are exchanged between stages: through channel files in the work-dir, or by "
    "Spark's shuffle; auto uses channel files on a single host.",
)
CHANNEL_MAX_RECORDS = ConfigOption(
    "penstock.channel.max-records",
    POSITIVE_INTEGER,
    4_000_000,
    "Maximum number of records in flight on one channel.",
)
CHANNEL_MAX_BYTES = ConfigOption(
    "penstock.channel.max-bytes",
    MEMORY_SIZE,
    512 << 20,
    "Maximum number of bytes in flight on one channel.",
)
CHANNEL_MAX_MICRO_BATCHES = ConfigOption(
    "penstock.channel.max-micro-batches",
    POSITIVE_INTEGER,
    2,
    "Maximum number of its consumer's micro-batches in flight on one channel: more absorb longer "
    "bursts, but aligned barriers wait for them.",
)
WORK_DIR: ConfigOption[Path | None] = ConfigOption(
    "penstock.work-dir",
    LOCAL_PATH,
    None,
    "Directory shared by driver and executors; a temporary one, removed at the end, if unset.",
)
STATE_LOCAL_DIR: ConfigOption[Path | None] = ConfigOption(
    "penstock.state.local-dir",
    HOST_PATH,
    None,
    "Directory of a host's local copy of the state, unless PENSTOCK_STATE_LOCAL_DIR is set in its "
    "environment. By default hashmap uses /dev/shm if it has enough space; rocksdb, and hashmap "
    "otherwise, Spark's local directories or the directory for temporary files.",
)
STATE_COMPACT_AFTER_DELTAS = ConfigOption(
    "penstock.state.compact-after-deltas",
    POSITIVE_INTEGER,
    64,
    "Minimum number of deltas of one subtask's state before they are compacted into a new base.",
)
SOURCE_POLL_INTERVAL = ConfigOption(
    "penstock.source.poll-interval",
    POSITIVE_DURATION,
    timedelta(milliseconds=100),
    "How often an idle source is polled.",
)
INGESTION_DIR: ConfigOption[Path | None] = ConfigOption(
    "penstock.ingestion.dir",
    LOCAL_PATH,
    None,
    "Directory for records of sources that cannot be replayed; in the work-dir if unset.",
)

KNOWN_OPTIONS: tuple[ConfigOption[Any], ...] = (
    *(
        value
        for module in (
            globals(),
            vars(source_options),
            vars(pipeline_options),
            vars(checkpoint_options),
            vars(recovery_options),
            vars(serve_options),
            vars(submission_options),
        )
        for value in module.values()
        if isinstance(value, ConfigOption)
    ),
    *ROCKSDB_METRICS.values(),
)
"""All options, in the order of the documentation: every option of these modules is one."""

STORAGE_PREFIX = "penstock.storage."
"""Settings of stores, `penstock.storage.<scheme>.<name>`; the client of the store checks them."""

_BY_KEY: dict[str, ConfigOption[Any]] = {
    key: option for option in KNOWN_OPTIONS for key in (option.key, *option.fallback_keys)
}


def validate(configuration: Configuration) -> None:
    """Check every key and value; log one warning for Flink's keys that have no effect.

    Raises:
        UnknownOptionError: a key is neither penstock's nor Flink's.
        OptionValueError: a value is not of its option's kind.
    """
    keys = sorted(configuration.key_set())
    without_effect = [key for key in keys if not check_option(key, configuration.get(key))]
    if without_effect:
        _log.warning("Flink options without effect in penstock: %s", ", ".join(without_effect))


def check_option(key: str, value: object) -> bool:
    """Check one key and its value; tell whether it has an effect.

    Raises:
        UnknownOptionError: the key is neither penstock's nor Flink's.
        OptionValueError: the value is not of its option's kind.
    """
    if key in _BY_KEY:
        parse(key, _BY_KEY[key], value)
        return True
    if is_flink_key(key):
        return False
    if not key.startswith(("spark.", STORAGE_PREFIX)):
        raise UnknownOptionError(key, _nearest(key))
    return True


def overlay(configuration: Configuration, later: Configuration) -> None:
    """Override settings with later ones, even if they use another name of the same option."""
    for key in later.key_set():
        if key in _BY_KEY:
            option = _BY_KEY[key]
            for name in (option.key, *option.fallback_keys):
                configuration.remove_config(name)
    configuration.add_all(later)


def _nearest(key: str) -> str | None:
    for candidates in (_BY_KEY, FLINK_KEYS):
        found = get_close_matches(key, sorted(candidates), n=1)
        if found:
            return found[0]
    return None
