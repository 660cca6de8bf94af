"""The settings of a job, read once from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.channel.log import Bounds
from penstock.common.config import known_options as options
from penstock.common.config.metric_options import rocksdb_metrics
from penstock.common.config.pipeline_options import AUTO_WATERMARK_INTERVAL, GLOBAL_JOB_PARAMETERS
from penstock.common.config.recovery_options import MAX_IDENTICAL_FAILURES
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.graph.regions import Transport
from penstock.job.stage.micro_batch_size import SizeLimits


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of one job."""

    sizes: SizeLimits
    bounds: Bounds
    transport: Transport | None
    """None lets the engine choose."""
    max_tries: int
    max_identical_failures: int
    poll_seconds: float
    backend: str
    batch_mode: bool
    watermark_seconds: float | None
    """How often user-defined watermark generators emit without records, None for never."""
    compact_after_deltas: int
    work_dir: Path | None
    local_dir: Path | None
    ingestion_dir: Path | None
    parameters: dict[str, str]
    rocksdb_metrics: tuple[str, ...]
    """The properties of RocksDB that are metrics."""


def read_settings(configuration: Configuration, batch_mode: bool) -> JobSettings:
    """Read the settings of a job from a configuration."""
    max_records = read(configuration, options.MICRO_BATCH_MAX_RECORDS)
    return JobSettings(
        sizes=SizeLimits(
            read(configuration, options.MICRO_BATCH_TARGET_DURATION).total_seconds(),
            min(read(configuration, options.MICRO_BATCH_INITIAL_RECORDS), max_records),
            max_records,
        ),
        bounds=Bounds(
            read(configuration, options.CHANNEL_MAX_RECORDS),
            read(configuration, options.CHANNEL_MAX_BYTES),
            read(configuration, options.CHANNEL_MAX_MICRO_BATCHES),
        ),
        transport=_transport(read(configuration, options.EXCHANGE), batch_mode),
        max_tries=read(configuration, options.MICRO_BATCH_MAX_TRIES),
        max_identical_failures=read(configuration, MAX_IDENTICAL_FAILURES),
        poll_seconds=read(configuration, options.SOURCE_POLL_INTERVAL).total_seconds(),
        backend=read(configuration, options.STATE_BACKEND),
        batch_mode=batch_mode,
        watermark_seconds=_watermark_seconds(configuration, batch_mode),
        compact_after_deltas=read(configuration, options.STATE_COMPACT_AFTER_DELTAS),
        work_dir=read(configuration, options.WORK_DIR),
        local_dir=read(configuration, options.STATE_LOCAL_DIR),
        ingestion_dir=read(configuration, options.INGESTION_DIR),
        rocksdb_metrics=rocksdb_metrics(configuration),
        parameters={
            # Functions see them; the credentials of stores are none of their business.
            **{
                key: str(configuration.get(key))
                for key in configuration.key_set()
                if not key.startswith(options.STORAGE_PREFIX)
            },
            **read(configuration, GLOBAL_JOB_PARAMETERS),
        },
    )


def _transport(exchange: str, batch_mode: bool) -> Transport | None:
    # In BATCH mode a stage starts when the one upstream of it has finished.
    if batch_mode:
        return Transport.CHANNEL
    return None if exchange == "auto" else Transport(exchange)


def _watermark_seconds(configuration: Configuration, batch_mode: bool) -> float | None:
    # In BATCH mode only the end of input advances event time.
    if batch_mode:
        return None
    return read(configuration, AUTO_WATERMARK_INTERVAL).total_seconds() or None
