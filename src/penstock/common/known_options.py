"""The configuration keys penstock acts on, and the check of a whole configuration."""

from __future__ import annotations

import logging
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from penstock.common.checkpoint_options import CHECKPOINT_OPTIONS
from penstock.common.config_options import ConfigOption, parse
from penstock.common.configuration import Configuration
from penstock.common.flink_keys import FLINK_KEYS, is_flink_key
from penstock.common.option_kinds import (
    MEMORY_SIZE,
    POSITIVE_DURATION,
    POSITIVE_INTEGER,
    STRING,
    choice,
    integer,
)
from penstock.common.pipeline_options import PIPELINE_OPTIONS
from penstock.common.recovery_options import RECOVERY_OPTIONS
from penstock.errors import UnknownOptionError

__all__ = [
    "CHANNEL_MAX_BYTES",
    "CHANNEL_MAX_MICRO_BATCHES",
    "CHANNEL_MAX_RECORDS",
    "EXCHANGE",
    "INGESTION_DIR",
    "KNOWN_OPTIONS",
    "MAX_PARALLELISM",
    "MICRO_BATCH_INITIAL_RECORDS",
    "MICRO_BATCH_MAX_RECORDS",
    "MICRO_BATCH_MAX_TRIES",
    "MICRO_BATCH_TARGET_DURATION",
    "PARALLELISM",
    "PIPELINE_NAME",
    "RUNTIME_MODE",
    "SOURCE_POLL_INTERVAL",
    "STATE_BACKEND",
    "STATE_COMPACT_AFTER_DELTAS",
    "STATE_LOCAL_DIR",
    "WORK_DIR",
    "check_pair",
    "overlay",
    "validate",
]

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
    "Whether results are given as they change or once at the end.",
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
    "How long a micro-batch should take; its records are chosen to come near.",
)
MICRO_BATCH_MAX_RECORDS = ConfigOption(
    "penstock.micro-batch.max-records",
    POSITIVE_INTEGER,
    2_000_000,
    "Most records a micro-batch takes in.",
)
MICRO_BATCH_INITIAL_RECORDS = ConfigOption(
    "penstock.micro-batch.initial-records",
    POSITIVE_INTEGER,
    20_000,
    "Records of the first micro-batch, before anything was measured.",
)
MICRO_BATCH_MAX_TRIES = ConfigOption(
    "penstock.micro-batch.max-tries",
    POSITIVE_INTEGER,
    3,
    "Tries of one micro-batch before the job fails.",
)
EXCHANGE = ConfigOption(
    "penstock.exchange",
    choice("auto", "channel", "shuffle"),
    "auto",
    "How records get from stage to stage: in files of the work-dir, or by Spark's shuffle; "
    "auto takes files on one host.",
)
CHANNEL_MAX_RECORDS = ConfigOption(
    "penstock.channel.max-records",
    POSITIVE_INTEGER,
    4_000_000,
    "Most records in flight on one channel.",
)
CHANNEL_MAX_BYTES = ConfigOption(
    "penstock.channel.max-bytes", MEMORY_SIZE, 512 << 20, "Most bytes in flight on one channel."
)
CHANNEL_MAX_MICRO_BATCHES = ConfigOption(
    "penstock.channel.max-micro-batches",
    POSITIVE_INTEGER,
    2,
    "Most micro-batches of its consumer in flight on one channel: more take up longer bursts, and "
    "aligned barriers wait behind them.",
)
WORK_DIR: ConfigOption[str | None] = ConfigOption(
    "penstock.work-dir",
    STRING,
    None,
    "Directory shared by driver and executors; a temporary one, removed at the end, if unset.",
)
STATE_LOCAL_DIR: ConfigOption[str | None] = ConfigOption(
    "penstock.state.local-dir",
    STRING,
    None,
    "Directory of a host's own copy of the state, where PENSTOCK_STATE_LOCAL_DIR is not in its "
    "environment; /dev/shm if there is room, else one for temporary files.",
)
STATE_COMPACT_AFTER_DELTAS = ConfigOption(
    "penstock.state.compact-after-deltas",
    POSITIVE_INTEGER,
    64,
    "Deltas of one subtask's state, at least, before they are folded into a new base.",
)
SOURCE_POLL_INTERVAL = ConfigOption(
    "penstock.source.poll-interval",
    POSITIVE_DURATION,
    timedelta(milliseconds=100),
    "How often an idle source is asked for news.",
)
INGESTION_DIR: ConfigOption[str | None] = ConfigOption(
    "penstock.ingestion.dir",
    STRING,
    None,
    "Directory of what sources received that cannot be read twice; in the work-dir if unset.",
)

KNOWN_OPTIONS: tuple[ConfigOption[Any], ...] = (
    PARALLELISM,
    MAX_PARALLELISM,
    PIPELINE_NAME,
    RUNTIME_MODE,
    STATE_BACKEND,
    MICRO_BATCH_TARGET_DURATION,
    MICRO_BATCH_MAX_RECORDS,
    MICRO_BATCH_INITIAL_RECORDS,
    MICRO_BATCH_MAX_TRIES,
    EXCHANGE,
    CHANNEL_MAX_RECORDS,
    CHANNEL_MAX_BYTES,
    CHANNEL_MAX_MICRO_BATCHES,
    WORK_DIR,
    STATE_LOCAL_DIR,
    STATE_COMPACT_AFTER_DELTAS,
    SOURCE_POLL_INTERVAL,
    INGESTION_DIR,
    *PIPELINE_OPTIONS,
    *CHECKPOINT_OPTIONS,
    *RECOVERY_OPTIONS,
)

_BY_KEY: dict[str, ConfigOption[Any]] = {
    key: option for option in KNOWN_OPTIONS for key in (option.key, *option.fallback_keys)
}


def validate(configuration: Configuration) -> None:
    """Check every key and value; log one warning about Flink's keys that change nothing here.

    Raises:
        UnknownOptionError: a key is known neither here nor to Flink.
        OptionValueError: a value is not of its option's kind.
    """
    keys = sorted(configuration.key_set())
    without_effect = [key for key in keys if not check_pair(key, configuration.get(key))]
    if without_effect:
        _log.warning("Flink options without effect in penstock: %s", ", ".join(without_effect))


def check_pair(key: str, value: object) -> bool:
    """Check one key and its value; tell whether it has an effect.

    Raises:
        UnknownOptionError: the key is known neither here nor to Flink.
        OptionValueError: the value is not of its option's kind.
    """
    if key in _BY_KEY:
        parse(key, _BY_KEY[key], value)
        return True
    if is_flink_key(key):
        return False
    if not key.startswith("spark."):
        raise UnknownOptionError(key, _nearest(key))
    return True


def overlay(configuration: Configuration, later: Configuration) -> None:
    """Put what was set later over a configuration, whichever spelling of a key either used."""
    for key in later.key_set():
        if key in _BY_KEY:
            option = _BY_KEY[key]
            for spelling in (option.key, *option.fallback_keys):
                configuration.remove_config(spelling)
    configuration.add_all(later)


def _nearest(key: str) -> str | None:
    for candidates in (_BY_KEY, FLINK_KEYS):
        found = get_close_matches(key, sorted(candidates), n=1)
        if found:
            return found[0]
    return None
