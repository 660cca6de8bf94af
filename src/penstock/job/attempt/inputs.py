"""Creates the channel logs of an attempt and opens the inputs of its regions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.channel.log import UNBOUNDED, ChannelLog, Entry
from penstock.checkpoint.settings import Guarantee
from penstock.common.storage_url import Location
from penstock.connectors.contracts.source import EnumeratorContext
from penstock.errors import MissingIngestionDirectoryError
from penstock.graph.plan import Plan, Stage
from penstock.graph.regions import PipelinedRegion
from penstock.graph.transformation import Exchange
from penstock.ids import ChannelId
from penstock.job.context import AttemptContext
from penstock.job.input.channel_input import BroadcastFirstInput, ChannelInput, GroupedInput
from penstock.job.input.read_progress import ReadProgress
from penstock.job.input.source_input import SourceInput
from penstock.job.input.stage_input import StageInput
from penstock.job.settings import JobSettings
from penstock.task.layout import file_name

logger = logging.getLogger("penstock.job")


def create_logs(
    plan: Plan,
    regions: Sequence[PipelinedRegion],
    settings: JobSettings,
    in_flight: Mapping[ChannelId, Sequence[Entry]],
) -> dict[ChannelId, ChannelLog]:
    """Create the logs of all channels between regions; restored in-flight data comes first."""
    logs = {}
    for channel in (c for region in regions for c in region.outputs):
        kind = plan.stages[channel.consumer].head.kind
        # In BATCH mode these consumers wait for the end of input, which a bound would block.
        collects = settings.batch_mode and (kind.is_keyed or kind.has_broadcast_side)
        logs[channel.id] = ChannelLog(UNBOUNDED if collects else settings.bounds)
        for entry in in_flight.get(channel.id, ()):
            logs[channel.id].append(entry)
    return logs


def check_ingestion_directory(plan: Plan, job_dir: Location, settings: JobSettings) -> None:
    """Reject a source that needs files which outlive the driver, if there is no place for them.

    Called before the journal records an attempt.

    Raises:
        MissingIngestionDirectoryError: the job's directory is in a store, and no other is set.
    """
    if isinstance(job_dir, Path) or settings.ingestion_dir is not None:
        return
    for node in (stage.head for stage in plan.stages if stage.is_source):
        files = node.function.keeps_files
        if files is not None:
            raise MissingIngestionDirectoryError(node.name, files, str(job_dir))


def open_input(context: AttemptContext, stage: Stage) -> StageInput:
    """Open the input of a region's first stage, a source at its restored positions."""
    if stage.is_source:
        return _open_source(context, stage)
    settings, kind = context.job.settings, stage.head.kind
    logs = {c.id: context.logs[c.id] for c in stage.inputs}
    if settings.batch_mode and kind.is_keyed:
        return GroupedInput(logs, stage.parallelism, settings.sizes.maximum)
    forward = [c.id for c in stage.inputs if c.exchange is Exchange.FORWARD]
    if settings.batch_mode and kind.has_broadcast_side:
        broadcast = [c.id for c in stage.inputs if c.input == 1]
        return BroadcastFirstInput(logs, stage.parallelism, forward, broadcast)
    return ChannelInput(logs, stage.parallelism, forward)


def _open_source(context: AttemptContext, stage: Stage) -> SourceInput:
    job, layout, uid = context.job, context.layout, stage.head.uid
    check_ingestion_directory(context.plan, layout.durable, job.settings)
    work_dir = job.settings.ingestion_dir or layout.connector_root
    # A directory that the user has set is durable.
    store = None if job.settings.ingestion_dir is not None else layout.connector_store
    enumerator = stage.head.function.enumerator(
        EnumeratorContext(
            parallelism=stage.parallelism,
            work_dir=work_dir / file_name(uid),
            clock=time.time,
            wake=context.signals.notify,
            job=layout.job,
            attempt=layout.attempt,
            checkpointed=job.checkpoints.enabled,
            lineage=f"{layout.job_instance} {layout.lineage}",
            check_owner=context.check_owner,
            complete_positions=job.checkpoints.mode is Guarantee.AT_MOST_ONCE,
            job_instance=layout.job_instance,
            monotonic=job.monotonic,
            store=store and store / file_name(uid),
        )
    )
    progress = None
    restored = context.restored.sources.get(uid)
    positions = {} if restored is None else restored.positions
    if job.checkpoints.mode is Guarantee.AT_MOST_ONCE:
        root, check_tail = layout.connector_store or layout.connector_root, context.store.check_tail
        progress = ReadProgress(root, uid, layout.attempt, check_tail)
        positions = {**positions, **progress.read()}
    source = SourceInput(
        enumerator, stage.parallelism, job.settings.poll_seconds, context.check_owner, progress
    )
    try:
        if restored is not None and restored.enumerator_state:
            enumerator.restore_state(restored.enumerator_state)
        if restored is not None and restored.files is not None:
            enumerator.restore_files(Path(restored.files.directory))
        enumerator.start(positions)
    except BaseException:
        close_quietly(source.close)
        raise
    return source


def close_quietly(close: Callable[[], None]) -> None:
    """Call a function that closes something; an error is only logged."""
    try:
        close()
    except Exception:
        logger.warning("Closing failed, the job is not affected: %r", close, exc_info=True)
