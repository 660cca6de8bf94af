"""Reads and verifies the snapshots that a job can be restored from."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from penstock.checkpoint.barriers.channel_state_files import in_flight_checks
from penstock.checkpoint.storage.committed_marker import recorded_as_committed
from penstock.checkpoint.storage.committed_output import CommittedOutput
from penstock.checkpoint.storage.job_dir import METADATA, JobDir, resolved
from penstock.checkpoint.storage.metadata import (
    JOB_INSTANCE,
    ChannelState,
    CheckpointMetadata,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.storage_url import Location
from penstock.connectors.contracts.snapshot_files import verify_snapshot_file
from penstock.errors import CorruptMetadataError, NotASavepointError
from penstock.ids import ChannelId, OperatorUid
from penstock.recovery.restore_candidates import RestoreCandidate
from penstock.savepoint.read import verify_files
from penstock.state.backends.registry import create_state_backend
from penstock.storage.storages import storage_at
from penstock.task.layout import state_location

_VERIFIED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was read: a checkpoint of this job or of another, or a savepoint."""

    metadata: CheckpointMetadata
    path: Location
    is_own: bool
    """Whether its files belong to this job, which continues to use them."""
    committed: CommittedOutput = field(default_factory=CommittedOutput)
    """What is recorded as committed of the output that it holds."""
    crc: int = 0
    """The checksum of its metadata file."""
    in_flight: Mapping[ChannelId, ChannelState] = field(default_factory=dict)
    """Its in-flight data, by the channels of the job that it goes back into."""
    may_unpickle: bool = True
    """Whether pickled data in it may be loaded."""

    @property
    def shared(self) -> Location:
        """The directory of a checkpoint's state files."""
        return self.path.parent / "shared"


def read_snapshot(job_dir: JobDir, candidate: RestoreCandidate) -> Snapshot:
    """Read the metadata of a snapshot.

    Raises:
        NotASavepointError: the path that the user named is not a snapshot.
        CorruptMetadataError: it is missing, damaged, or not the one that the journal names.
    """
    path = job_dir.from_journal_path(candidate.path)
    path = path.parent if path.name == METADATA else path
    file, storage = path / METADATA, storage_at(path)
    if candidate.checkpoint is None and not storage.exists(METADATA):
        raise NotASavepointError(candidate.path, f"it has no {METADATA}")
    try:
        data = storage.read(METADATA)
    except FileNotFoundError:
        raise CorruptMetadataError(str(file), "it is missing") from None
    metadata = decode_metadata(data, str(file))
    crc = zlib.crc32(data)
    if candidate.crc is not None and crc != candidate.crc:
        raise CorruptMetadataError(str(file), "it is not the file that the journal names")
    if candidate.checkpoint is not None:
        return Snapshot(metadata, path, True, candidate.committed, crc)
    committed = recorded_as_committed(job_dir, path, metadata, crc)
    return Snapshot(metadata, path, False, committed, crc)


def is_of_this_job(job_dir: JobDir, snapshot: Snapshot) -> bool:
    """Whether this job took a snapshot, and not another one with the same id.

    Metadata written by older versions does not name the job instance. Then a checkpoint is this
    job's if it is in its directory, and a savepoint if the job has a copy of its metadata.
    """
    if snapshot.is_own:
        return True
    metadata = snapshot.metadata
    instance = metadata.properties.get(JOB_INSTANCE)
    if instance is not None:
        return instance == job_dir.job_instance()
    if metadata.kind != "savepoint":
        return resolved(snapshot.path.parent) == resolved(job_dir.path)
    try:
        copy = job_dir.storage.read(job_dir.savepoint_copy(metadata.checkpoint))
    except FileNotFoundError:
        return False
    return copy == storage_at(snapshot.path).read(METADATA)


def verify_snapshot(snapshot: Snapshot) -> None:
    """Read every file of a snapshot and compare its checksum.

    Raises:
        CorruptStateError: a file is missing, damaged or another one.
    """
    with ThreadPoolExecutor(_VERIFIED_AT_ONCE) as pool:
        for check in [pool.submit(check) for check in _checks(snapshot)]:
            check.result()


def _checks(snapshot: Snapshot) -> Iterator[Callable[[], None]]:
    for operator in snapshot.metadata.operators:
        if operator.source is not None and (kept := operator.source.files) is not None:
            source = kept.located_in(snapshot.path)
            yield from (partial(verify_snapshot_file, source, file) for file in kept.files)
        for saved in operator.savepoint:
            yield partial(verify_files, snapshot.path, [saved])
        yield from in_flight_checks(snapshot.path, operator.uid, operator.in_flight)
        for subtask, ref in enumerate(operator.keyed):
            place = state_location(snapshot.shared, OperatorUid(operator.uid), subtask)
            yield partial(create_state_backend(operator.backend or "").verify, place, ref)
