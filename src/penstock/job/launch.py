"""Launches a plan as a running job."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.checkpoint.settings import read_checkpoint_settings
from penstock.checkpoint.storage.job_dir import JobDir, job_key
from penstock.checkpoint.storage.journal import Journal
from penstock.common.config.checkpoint_options import CHECKPOINT_DIR, FRESH
from penstock.common.config.known_options import WORK_DIR
from penstock.common.config_options import read
from penstock.common.configuration import Configuration
from penstock.common.storage_url import Location
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.errors import JobAlreadyRunningError, UnusableDirectoryError
from penstock.graph.plan import Plan, with_job_settings
from penstock.graph.regions import PipelinedRegion, Transport, pipelined_regions
from penstock.ids import AttemptId, ChannelId, JobKey, StageId
from penstock.job.attempt.inputs import check_ingestion_directory
from penstock.job.context import JobContext
from penstock.job.figures.cluster import ClusterInfo
from penstock.job.figures.program_facts import program_facts
from penstock.job.launched_job import LaunchedJob
from penstock.job.restore.work_dirs import own_work_dir
from penstock.job.settings import JobSettings, read_settings
from penstock.job.submitter import Submitter
from penstock.recovery.restart_strategy import read_restart_strategy
from penstock.recovery.supervisor import supervised_since
from penstock.state.backends.registry import create_state_backend
from penstock.state.local_dir import TOKEN_BYTES, HostDir
from penstock.storage.durable_files import make_directory, sync_directory
from penstock.task.layout import AttemptLayout
from penstock.task.stage_task import StageTask, dump_task

logger = logging.getLogger("penstock")

MakeSubmitter = Callable[[tuple[PipelinedRegion, ...], str, dict[StageId, bytes], bool], Submitter]
"""Makes the engine side of an attempt from its regions, its name and its pickled stages by id.

The last argument says whether subtasks must stay on their hosts, because hosts share no directory.
"""

ResolveTransport = Callable[[Transport | None], Transport]
"""Chooses the transport between stages, given that of the configuration, None for automatic."""

MissingOnHosts = Callable[[Sequence[Path]], Mapping[Path, str]]
"""Returns which of some paths a host of the engine does not have, with the name of a host."""

_OWNER_ONLY = 0o700
_OTHERS = 0o077

_launched: weakref.WeakValueDictionary[Location, LaunchedJob] = weakref.WeakValueDictionary()
"""The jobs of this process by directory: the lease only excludes other processes.

The threads of a running job keep it alive.
"""


def launch(
    plan: Plan,
    configuration: Configuration,
    batch_mode: bool,
    make_submitter: MakeSubmitter,
    resolve_transport: ResolveTransport = lambda wanted: wanted or Transport.CHANNEL,
    missing_on_hosts: MissingOnHosts = lambda paths: {},
    clock: Callable[[], float] = time.time,
    cluster: Callable[[], ClusterInfo] = ClusterInfo,
) -> LaunchedJob:
    """Start a plan and return at once; a job whose driver died resumes from its newest checkpoint.

    Everything that can be rejected is rejected before the engine is started.
    """
    checkpoints = read_checkpoint_settings(configuration, batch_mode=batch_mode)
    settings = read_settings(configuration, batch_mode)
    plan = with_job_settings(plan, InputSettings.from_configuration(configuration))
    restart = read_restart_strategy(configuration, checkpointing=checkpoints.enabled)
    key = job_key(checkpoints.job_id, plan.job_name)
    work_dir, temporary = _work_dir(settings, key, is_all=checkpoints.directory is not None)
    root = checkpoints.directory or temporary or work_dir
    job_dir = JobDir(root, key, checkpoints.storage_options)
    if isinstance(job_dir.path, Path):
        _make(job_dir.path, WORK_DIR.key if checkpoints.directory is None else CHECKPOINT_DIR.key)
    else:
        _reach(job_dir)
    check_ingestion_directory(plan, job_dir.path, settings)
    running = _launched.get(job_dir.path)
    if running is not None and not running.wait_for_end(0):
        raise JobAlreadyRunningError(key, "this host", os.getpid(), "just now")
    local_dir = _local_dir(settings, job_dir)
    files_dir = replace(local_dir, name=f"{local_dir.name}-files", in_memory=False)
    if checkpoints.enabled and checkpoints.directory is None:
        logger.warning(
            "Checkpoints of job %r do not survive this process: after a crash it starts from the "
            "beginning. Set execution.checkpointing.dir to a durable directory",
            plan.job_name,
        )

    def stage_tasks(
        regions: tuple[PipelinedRegion, ...], layout: AttemptLayout
    ) -> dict[StageId, bytes]:
        return {
            stage.id: dump_task(
                StageTask(
                    stage=stage,
                    layout=layout,
                    backend=settings.backend,
                    batch_mode=batch_mode,
                    parameters=settings.parameters,
                    internal_channels=region.internal_channels,
                    rocksdb_metrics=settings.rocksdb_metrics,
                )
            )
            for region in regions
            for stage in region.stages
        }

    def regions(plan: Plan, logged: Collection[ChannelId]) -> tuple[PipelinedRegion, ...]:
        return pipelined_regions(plan, resolve_transport(settings.transport), logged)

    def submitter(regions: tuple[PipelinedRegion, ...], layout: AttemptLayout) -> Submitter:
        name = f"{key}-{layout.attempt}-{os.urandom(3).hex()}"
        tasks = stage_tasks(regions, layout)
        return make_submitter(regions, name, tasks, layout.unshared is not None)

    # A plan that cannot be pickled is rejected before the journal records a start.
    stage_tasks(
        pipelined_regions(plan, Transport.CHANNEL),
        AttemptLayout(work_dir, local_dir, AttemptId("none"), job_dir.path, key),
    )
    context = JobContext(
        plan=plan,
        settings=settings,
        checkpoints=checkpoints,
        restart=restart,
        job_dir=job_dir,
        work_dir=work_dir,
        local_dir=local_dir,
        files_dir=files_dir,
        fresh=_is_fresh(configuration, job_dir),
        program=program_facts(plan.job_name, configuration, batch_mode=batch_mode),
        regions=regions,
        missing_on_hosts=missing_on_hosts,
        make_submitter=submitter,
        cluster=cluster,
        clock=clock,
        # A test that moves processing time by hand moves everything by it.
        monotonic=time.monotonic if clock is time.time else clock,
    )
    job = LaunchedJob(context, temporary)
    _launched[job_dir.path] = job
    try:
        _make(work_dir, WORK_DIR.key)
        own_work_dir(work_dir, job_dir.path)
        job.start()
    except BaseException:
        _launched.pop(job_dir.path, None)
        shutil.rmtree(work_dir, ignore_errors=True)
        raise
    return job


def _work_dir(settings: JobSettings, key: JobKey, *, is_all: bool) -> tuple[Path, Path | None]:
    """Return the work directory, and the temporary directory that it is or is in.

    `is_all` says that nothing else of the job is temporary.
    """
    if settings.work_dir is not None:
        return settings.work_dir / f"penstock-{key}-{os.urandom(3).hex()}", None
    temporary = Path(tempfile.mkdtemp(prefix="penstock-"))
    return (temporary if is_all else temporary / "penstock-work"), temporary


def _is_fresh(configuration: Configuration, job_dir: JobDir) -> bool:
    """Whether to ignore all snapshots; not again if a supervised driver died after doing so."""
    since = supervised_since()
    if not read(configuration, FRESH) or since is None:
        return read(configuration, FRESH)
    attempts = Journal(job_dir.storage, job_dir.key).state().attempts
    return not any(attempt.fresh and attempt.time >= since for attempt in attempts)


def _make(directory: Path, key: str) -> None:
    """Create a directory that only its owner may enter, or let only its owner enter it.

    Raises:
        UnusableDirectoryError: it cannot be created, or nothing can be created in it.
    """
    try:
        if not directory.is_dir():
            make_directory(directory.parent)
            directory.mkdir(_OWNER_ONLY, exist_ok=True)
            sync_directory(directory.parent)
        facts = directory.stat()
        # Not that of another user, who may have reasons, and lets this user use it.
        if facts.st_uid == os.geteuid() and facts.st_mode & _OTHERS:
            with contextlib.suppress(PermissionError, NotImplementedError):
                directory.chmod(_OWNER_ONLY)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableDirectoryError(key, str(directory), reason) from error


def _reach(job_dir: JobDir) -> None:
    """Check that a job's directory in a store can be used, which needs no directory to exist.

    A store that ignores the condition of a create would let two drivers write the same entry of
    the journal.

    Raises:
        UnusableDirectoryError: the store cannot be reached, refuses, or overwrites.
    """
    storage, probe = job_dir.storage, f"probe-{os.urandom(6).hex()}"
    try:
        job_dir.job_instance()
        try:
            storage.create(probe, b"first")
            with contextlib.suppress(FileExistsError):
                storage.create(probe, b"second")
                reason = "it overwrites what has to be created only if absent (If-None-Match)"
                raise UnusableDirectoryError(CHECKPOINT_DIR.key, str(job_dir.path), reason)
        finally:
            storage.delete(probe)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnusableDirectoryError(CHECKPOINT_DIR.key, str(job_dir.path), reason) from error


def _local_dir(settings: JobSettings, job_dir: JobDir) -> HostDir:
    named = f"{job_dir.path} {job_dir.job_instance()}"
    where = hashlib.blake2b(named.encode(), digest_size=6).hexdigest()
    return HostDir(
        settings.local_dir,
        f"penstock-{job_dir.key}-{where}",
        token=os.urandom(TOKEN_BYTES).hex(),
        in_memory=not create_state_backend(settings.backend).exceeds_memory,
    )
