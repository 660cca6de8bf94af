"""Registers the formats for state with a session, and reads state as a DataFrame."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from os import PathLike, fspath
from typing import Any
from weakref import WeakSet

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from penstock.common.config.configuration_file import global_configuration
from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.configuration import Configuration
from penstock.errors import StateOptionError, StateReadError
from penstock.snapshots.json_values import BASE64
from penstock.snapshots.reading import reading
from penstock.spark.root_cause import root_cause
from penstock.spark.state import options
from penstock.spark.state.metadata_source import StateMetadataSource
from penstock.spark.state.options import StateOptions, parse_options
from penstock.spark.state.source import STATE_FORMAT, ScannedSource, StateSource
from penstock.storage.storage_options import storage_options

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession, configuration: Configuration | None = None) -> None:
    """Let `spark.read.format()` of a session know `penstock.state` and `penstock.state-metadata`.

    Sessions that environments create or adopt know both. Settings of stores come from the session
    (`spark.penstock.storage.…`) and the configuration, by default the global one, as they are now.
    """
    if spark in _registered:
        return
    defaults = _storage_settings(spark, configuration)
    for source in (StateSource, StateMetadataSource):
        spark.dataSource.register(_with_defaults(source, defaults))
    _registered.add(spark)


def read_state(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    operator: str | None = None,
    state: str | None = None,
    keys: Sequence[Any] | None = None,
    checkpoint: int | None = None,
    **more: object,
) -> DataFrame:
    """Return state of a snapshot as a DataFrame: of a checkpoint, a savepoint, or a job.

    Args:
        spark: any session.
        path: the directory of a checkpoint or savepoint, or that of a job, whose last completed
            checkpoint is read.
        operator: the uid of an operator, or its name; may be left out if only one has state.
        state: the name of a state; may be left out if there is only one.
        keys: read only these keys, and only the key groups that they are in.
        checkpoint: the id of a checkpoint that the job retains.
        **more: all other options of the format `penstock.state`, such as `readRegisteredTimers`.

    Raises:
        SnapshotError: there is no such snapshot, operator or state, or options conflict.
    """
    register(spark)
    given: dict[str, object] = {
        options.PATH: fspath(path),
        options.OPERATOR: operator,
        options.STATE: state,
        options.CHECKPOINT: checkpoint,
        options.KEYS: None
        if keys is None
        else msgspec.json.encode(list(map(_as_json, keys))).decode(),
        options.PARTITIONS: spark.sparkContext.defaultParallelism,
    }
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    twice = {name.lower(): name for name in texts if name != options.PARTITIONS}
    for name, value in more.items():
        if name.lower() in twice:
            raise StateOptionError(name, "it is given twice")
        texts[name] = _text(value)
    _check(parse_options({**_storage_settings(spark), **texts}))
    try:
        return spark.read.format(STATE_FORMAT).options(**texts).load()
    except AnalysisException as error:
        raise StateReadError(fspath(path), root_cause(str(error))) from None


def _check(options: StateOptions) -> None:
    """Raise here what is known before files are read, as the error it is."""
    if options.changes is None:
        with reading(options.path, options.checkpoint) as found:
            if options.operator is not None:
                found.snapshot.operator(options.operator)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _storage_settings(
    spark: SparkSession, configuration: Configuration | None = None
) -> dict[str, str]:
    """Return the settings of stores, by their whole names; those of the session come first."""
    known = storage_options(global_configuration() if configuration is None else configuration)
    prefix = f"spark.{STORAGE_PREFIX}"
    of_session = {
        key.removeprefix(prefix): value
        for key, value in spark.sparkContext.getConf().getAll()
        if key.startswith(prefix)
    }
    return {f"{STORAGE_PREFIX}{key}": value for key, value in {**known, **of_session}.items()}


def _with_defaults(source: type[ScannedSource], defaults: Mapping[str, str]) -> type[ScannedSource]:
    if not defaults:
        return source
    return type(source.__name__, (source,), {"defaults": dict(defaults)})


def _as_json(key: Any) -> Any:
    """Return a key in the form in which the option `keys` has it."""
    match key:
        case bytes():
            return {BASE64: base64.b64encode(key).decode()}
        case datetime.date() | datetime.time():
            return key.isoformat()
        case Decimal():
            return str(key)
        case list() | tuple():
            return list(map(_as_json, key))
        case dict():
            return {name: _as_json(value) for name, value in key.items()}
    return key
