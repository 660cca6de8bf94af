"""What the parts of a job share: `JobContext` for all attempts, `AttemptContext` for one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.channel.log import ChannelLog
from penstock.checkpoint.coordinator.load_tracker import LoadTracker
from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.settings import CheckpointSettings
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import (
    CompletedCheckpoint,
    CompletedCheckpointStore,
)
from penstock.checkpoint.storage.job_dir import JobDir, JobFacts
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion
from penstock.ids import ChannelId
from penstock.job.figures.cluster import ClusterInfo
from penstock.job.figures.job_monitor import JobMonitor
from penstock.job.reports import ReportListener
from penstock.job.restore.retained_snapshots import RetainedPositions, RetainedSnapshots
from penstock.job.restore.state_restorer import RestoredJob
from penstock.job.settings import JobSettings
from penstock.job.signals import JobSignals
from penstock.job.submitter import Submitter
from penstock.job.time.watermarks import WatermarkAlignmentGroup
from penstock.recovery.channel_matching import ChannelEndpoints
from penstock.recovery.restart_strategy import RestartStrategy
from penstock.state.local_dir import HostDir
from penstock.task.layout import AttemptLayout


@dataclass(frozen=True, slots=True)
class JobContext:
    """What all attempts of a job share; created once by `launch`."""

    plan: Plan
    settings: JobSettings
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    job_dir: JobDir
    work_dir: Path
    """Shared by driver and tasks, or the driver's own; of use to one attempt only."""
    local_dir: HostDir
    files_dir: HostDir
    """For the files of tasks, if they do not see `work_dir`."""
    fresh: bool
    program: JobFacts
    regions: Callable[[Plan, Collection[ChannelId]], tuple[PipelinedRegion, ...]]
    """Divides a plan into regions, given the channels that must have a log."""
    missing_on_hosts: Callable[[Sequence[Path]], Mapping[Path, str]]
    """Returns which of some paths a host of the engine does not have, with the name of a host."""
    make_submitter: Callable[[tuple[PipelinedRegion, ...], AttemptLayout], Submitter]
    cluster: Callable[[], ClusterInfo]
    """Returns the processes of the engine; may raise while it is being started or stopped."""
    clock: Callable[[], float]
    """Processing time, in seconds."""
    monotonic: Callable[[], float]
    """A clock in seconds that is never set, for durations."""


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What an attempt, its region loops and its stage executions share."""

    job: JobContext
    plan: Plan
    """The job's plan, its operators matched with those of the restored snapshot."""
    regions: tuple[PipelinedRegion, ...]
    layout: AttemptLayout
    store: CompletedCheckpointStore
    stats: CheckpointStatsTracker
    load: LoadTracker
    submitter: Submitter
    registry: SharedStateRegistry
    retained: RetainedSnapshots
    positions: RetainedPositions
    restored: RestoredJob
    logs: Mapping[ChannelId, ChannelLog]
    """The channels between regions: one loop appends, another consumes."""
    endpoints: Mapping[ChannelId, ChannelEndpoints]
    on_completed: Callable[[CompletedCheckpoint], None]
    report: ReportListener
    monitor: JobMonitor
    check_owner: Callable[[], None]
    """Raises `FencedError` if another driver has taken the job; see `Lease.check`."""
    signals: JobSignals = field(default_factory=JobSignals)
    alignment: WatermarkAlignmentGroup = field(default_factory=WatermarkAlignmentGroup)
