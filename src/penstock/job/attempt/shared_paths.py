"""Finds out which directories the hosts of a job share, before anything runs on them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.sink import Sink
from penstock.connectors.contracts.source import Source
from penstock.errors import MissingOnHostError, UnsharedWorkDirError
from penstock.graph.plan import Plan
from penstock.ids import AttemptId, is_no_later
from penstock.job.context import JobContext
from penstock.task.layout import UnsharedHosts

logger = logging.getLogger("penstock.job")

_MARKER = re.compile(r"\.penstock-[0-9a-f]{16}")
_MARKER_AGE_S = 24 * 3600

RELAY = "relay"
"""Where a job has the relays of its attempts, in its directory in a store."""


def check_shared_paths(job: JobContext, plan: Plan) -> UnsharedHosts | None:
    """Return what takes the place of a shared work directory, None if driver and tasks share it.

    Called by an attempt whose engine runs. It looks at the hosts that the engine has now; on those
    that join later a missing path is found by the first task.

    Raises:
        MissingOnHostError: a host does not have what a source reads there, or a sink writes.
        UnsharedWorkDirError: a host does not see the work directory, and the job is in no store.
    """
    with contextlib.ExitStack() as markers:
        work = markers.enter_context(_marker_in(job.work_dir))
        needed = list(_needed(job, plan, work, markers))
        missing = job.missing_on_hosts([work, *(one.seen for one in needed)])
    for one in needed:
        if one.seen in missing:
            raise MissingOnHostError(one.step, str(one.path), missing[one.seen])
    if work not in missing:
        return None
    if not isinstance(job.job_dir.path, StorageUrl):
        raise UnsharedWorkDirError(str(job.work_dir.parent), missing[work])
    return UnsharedHosts(job.files_dir, job.job_dir.path / RELAY)


def remove_relays(job_dir: JobDir, attempt: AttemptId) -> None:
    """Remove what this attempt and older ones have left in the store for other hosts.

    Called before an attempt's tasks run, and after they have. A later attempt may run already.
    """
    if not isinstance(job_dir.path, StorageUrl):
        return
    storage = job_dir.storage
    for name in storage.children(RELAY):
        if is_no_later(name, attempt):
            storage.delete_tree(f"{RELAY}/{name}")
    try:
        storage.delete_unfinished(RELAY, lambda path: is_no_later(path.split("/")[1], attempt))
    except OSError as error:
        logger.warning("Unfinished uploads below %s are not removed: %s", job_dir.path, error)


def _remove_old_markers(new: Path) -> None:
    """Remove what killed drivers have left beside a marker; another job may be using newer ones."""
    with contextlib.suppress(OSError):
        limit = new.stat().st_mtime - _MARKER_AGE_S
        for path in new.parent.glob(".penstock-*"):
            if _MARKER.fullmatch(path.name) and path.is_file() and path.stat().st_mtime < limit:
                path.unlink()


@dataclass(frozen=True, slots=True)
class _Needed:
    """A path that all hosts must have."""

    step: str
    path: Path
    seen: Path
    """What has to exist there: the path itself, or a file that the driver has just created."""


def _needed(
    job: JobContext, plan: Plan, work: Path, markers: contextlib.ExitStack
) -> Iterator[_Needed]:
    ingestion_dir = job.settings.ingestion_dir
    for node in (node for stage in plan.stages for node in stage.nodes):
        if isinstance(node.function, Source):
            for path in node.function.paths_on_hosts():
                yield _Needed(node.name, path, path)
            if not node.function.reads_work_dir:
                continue
            if ingestion_dir is None:
                yield _Needed(node.name, job.work_dir.parent, work)
            else:
                marker = markers.enter_context(_marker_in(ingestion_dir))
                yield _Needed(node.name, ingestion_dir, marker)
        elif isinstance(node.function, Sink):
            for path in node.function.paths_on_hosts():
                yield _Needed(node.name, path, markers.enter_context(_marker_in(path)))


@contextlib.contextmanager
def _marker_in(directory: Path) -> Iterator[Path]:
    marker = directory / f".penstock-{os.urandom(8).hex()}"
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()
    _remove_old_markers(marker)
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)
