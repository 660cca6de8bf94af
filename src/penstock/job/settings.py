"""What the configuration says about how a job runs, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.channel.log import Bounds
from penstock.job.sizing import SizeLimits


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings of one job."""

    sizes: SizeLimits
    bounds: Bounds
    max_tries: int
    poll_seconds: float
    backend: str
    batch_mode: bool
    compact_after_deltas: int
    work_dir: Path | None
    local_dir: Path | None
    ingestion_dir: Path | None
    parameters: dict[str, str]
