"""The checkpoint or savepoint that a command line names, by its path or by its job."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.cli.options import (
    SelectedJob,
    as_path,
    directory_options,
    reached_with,
    settings_of,
)
from penstock.common.storage_url import Location
from penstock.snapshots.reading import PinnedSnapshot, open_pinned, pinned_of_job
from penstock.snapshots.stored_snapshot import METADATA, StoredSnapshot
from penstock.storage.storage_options import storage_options
from penstock.storage.storages import storage_at

_RENEW_EVERY_S = 15.0
WHERE_HELP = """\
    PATH is the directory of a checkpoint or savepoint. JOB is an id, a name, or the path of a
    job's directory; it stands for its newest completed checkpoint."""


@dataclass(frozen=True, slots=True)
class Selection:
    """PATH or JOB, and the settings with which it is found."""

    where: str
    defines: tuple[str, ...]
    config: Path | None
    directory: Location | None

    def job(self) -> SelectedJob:
        """Return the job that it names.

        Raises:
            ConfigurationError, UnknownJobError, AmbiguousJobError: there is none.
        """
        return SelectedJob.find(self.where, self.defines, self.config, self.directory)

    def open(self, checkpoint: int | None = None) -> PinnedSnapshot:
        """Open it: of a job the newest completed checkpoint, or a given one.

        Raises:
            SnapshotError: there is none, or not that one.
            ConfigurationError, UnknownJobError, AmbiguousJobError: there is no such job.
        """
        path = as_path(None, None, self.where, hint="PATH|JOB")
        assert path is not None
        path = reached_with(storage_options(settings_of(self.defines, self.config)), path)
        is_path = "/" in self.where or path.name == METADATA
        if is_path or (checkpoint is None and storage_at(path).exists(METADATA)):
            return open_pinned(path, checkpoint)
        return pinned_of_job(self.job().directory, checkpoint)

    @contextmanager
    def reading(self, checkpoint: int | None = None) -> Iterator[StoredSnapshot]:
        """Open it for as long as the context lasts; its job deletes nothing of it meanwhile."""
        found = self.open(checkpoint)
        try:
            with renewed(found):
                yield found.snapshot
        finally:
            found.release()


@contextmanager
def renewed(found: PinnedSnapshot) -> Iterator[None]:
    """Renew a pin in the background, however long the context lasts."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEW_EVERY_S):
            if found.pin is not None:
                found.pin.renew()

    thread = threading.Thread(target=renew, daemon=True)
    if found.pin is not None:
        thread.start()
    try:
        yield
    finally:
        ended.set()


def snapshot_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add PATH|JOB, --dir, -D and -c; the command gets a `Selection` as its first argument."""

    @click.argument("where", metavar="PATH|JOB")
    @directory_options
    @functools.wraps(command)
    def with_selection(
        where: str,
        defines: tuple[str, ...],
        config: Path | None,
        directory: Location | None,
        **options: Any,
    ) -> None:
        command(Selection(where, defines, config, directory), **options)

    with_selection.__doc__ = f"{command.__doc__}\n\n{WHERE_HELP}"
    return with_selection


def checkpoint_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --checkpoint."""
    return click.option(
        "--checkpoint", type=int, metavar="ID", help="Another checkpoint of JOB than the newest."
    )(command)
