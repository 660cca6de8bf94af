"""Passes what tasks staged for sinks to the driver, on hosts that share no directory.

A sink's writer leaves files in its directories on the host of its task, under names that contain
that of the task attempt. The task puts them into the store, and the driver brings them into its own
directories of the sink before the publisher gets what names them. So sinks need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.common.new_files import create_file
from penstock.common.storage_url import StorageUrl
from penstock.errors import LostStagedFileError
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.ids import OperatorUid
from penstock.storage.contract import pieces_of
from penstock.storage.storages import storage_at
from penstock.task.layout import AttemptLayout, SinkDirs, file_name
from penstock.task.messages import RelayedFile
from penstock.task.staged_files import files_of

_AT_ONCE = 4


def relay_files(layout: AttemptLayout, stage: Stage, staged: str) -> list[RelayedFile]:
    """Move what a task attempt staged for the sinks of its stage into the store.

    Called in the task, after its writers have staged. If driver and tasks share a directory there
    is nothing to do.
    """
    relay = layout.relay
    if relay is None:
        return []
    relayed = []
    for uid in _sinks(stage):
        directories = layout.sink_dirs_of_task(uid)
        for field, directory in directories._asdict().items():
            for path in sorted(files_of(directory, staged)):
                name, size = path.relative_to(directory).as_posix(), path.stat().st_size
                file = RelayedFile(uid, field, name, size)
                place = _place(relay, file)
                storage_at(place.parent).write(place.name, pieces_of(path))
                path.unlink()
                relayed.append(file)
    return relayed


def fetch_relayed(layout: AttemptLayout, files: Iterable[RelayedFile]) -> list[StorageUrl]:
    """Bring files to where the driver expects them; return the objects, to be deleted.

    Raises:
        LostStagedFileError: one is missing, or incomplete.
    """
    relay, wanted = layout.relay, list(files)
    if relay is None or not wanted:
        return []
    places = [_place(relay, file) for file in wanted]
    paths = [_path(layout.sink_dirs(OperatorUid(file.uid)), file) for file in wanted]
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as threads:
        list(threads.map(_fetch, places, paths, (file.size for file in wanted)))
    return places


def _sinks(stage: Stage) -> Iterator[OperatorUid]:
    return (node.uid for node in stage.nodes if node.kind is OperatorKind.SINK)


def _place(relay: StorageUrl, file: RelayedFile) -> StorageUrl:
    return relay / "sinks" / file_name(OperatorUid(file.uid)) / file.directory / file.name


def _path(directories: SinkDirs, file: RelayedFile) -> Path:
    directory: Path = getattr(directories, file.directory)
    return directory / file.name


def _fetch(place: StorageUrl, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = 0
    try:
        with create_file(path) as file:
            for piece in storage_at(place.parent).stream(place.name):
                file.write(piece)
                found += len(piece)
    except FileNotFoundError:
        raise LostStagedFileError(str(place), size, 0) from None
    if found != size:
        raise LostStagedFileError(str(place), size, found)
