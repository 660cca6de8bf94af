"""What the configuration says about how a job runs, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.channel.log import Bounds
from penstock.checkpoint.settings import CheckpointSettings
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.known_options import (
    CHANNEL_MAX_BYTES,
    CHANNEL_MAX_MICRO_BATCHES,
    CHANNEL_MAX_RECORDS,
    EXCHANGE,
    INGESTION_DIR,
    MICRO_BATCH_INITIAL_RECORDS,
    MICRO_BATCH_MAX_RECORDS,
    MICRO_BATCH_MAX_TRIES,
    MICRO_BATCH_TARGET_DURATION,
    SOURCE_POLL_INTERVAL,
    STATE_BACKEND,
    STATE_COMPACT_AFTER_DELTAS,
    STATE_LOCAL_DIR,
    WORK_DIR,
)
from penstock.common.pipeline_options import AUTO_WATERMARK_INTERVAL, GLOBAL_JOB_PARAMETERS
from penstock.graph.groups import Transport
from penstock.job.sizing import SizeLimits


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of one job."""

    sizes: SizeLimits
    bounds: Bounds
    transport: Transport | None
    """None leaves it to the engine."""
    max_tries: int
    poll_seconds: float
    backend: str
    batch_mode: bool
    watermark_seconds: float | None
    """How often generators of the user's own are asked without records, None for never."""
    compact_after_deltas: int
    work_dir: Path | None
    local_dir: Path | None
    ingestion_dir: Path | None
    incremental: bool
    synchronous_snapshots: bool
    parameters: dict[str, str]


def read_settings(
    configuration: Configuration, checkpoints: CheckpointSettings, batch_mode: bool
) -> JobSettings:
    """Read everything a job's loops need out of a configuration."""
    return JobSettings(
        sizes=SizeLimits(
            target_seconds=read(configuration, MICRO_BATCH_TARGET_DURATION).total_seconds(),
            initial=min(
                read(configuration, MICRO_BATCH_INITIAL_RECORDS),
                read(configuration, MICRO_BATCH_MAX_RECORDS),
            ),
            maximum=read(configuration, MICRO_BATCH_MAX_RECORDS),
        ),
        bounds=Bounds(
            read(configuration, CHANNEL_MAX_RECORDS),
            read(configuration, CHANNEL_MAX_BYTES),
            read(configuration, CHANNEL_MAX_MICRO_BATCHES),
        ),
        transport=_transport(read(configuration, EXCHANGE), batch_mode),
        max_tries=read(configuration, MICRO_BATCH_MAX_TRIES),
        poll_seconds=read(configuration, SOURCE_POLL_INTERVAL).total_seconds(),
        backend=read(configuration, STATE_BACKEND),
        batch_mode=batch_mode,
        watermark_seconds=_watermark_seconds(configuration, batch_mode),
        compact_after_deltas=read(configuration, STATE_COMPACT_AFTER_DELTAS),
        work_dir=_path(read(configuration, WORK_DIR)),
        local_dir=_path(read(configuration, STATE_LOCAL_DIR)),
        ingestion_dir=_path(read(configuration, INGESTION_DIR)),
        incremental=checkpoints.incremental,
        synchronous_snapshots=checkpoints.synchronous,
        parameters={
            **{key: str(configuration.get(key)) for key in configuration.key_set()},
            **read(configuration, GLOBAL_JOB_PARAMETERS),
        },
    )


def _transport(exchange: str, batch_mode: bool) -> Transport | None:
    # In BATCH mode a stage begins when the one before it has come to its end.
    if batch_mode:
        return Transport.CHANNEL
    return None if exchange == "auto" else Transport(exchange)


def _watermark_seconds(configuration: Configuration, batch_mode: bool) -> float | None:
    # In BATCH mode nothing but the end of input moves time.
    if batch_mode:
        return None
    return read(configuration, AUTO_WATERMARK_INTERVAL).total_seconds() or None


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).absolute()
