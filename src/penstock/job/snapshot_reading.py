"""From a path to a snapshot that may be begun with."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.checkpoint.channel_files import prove_segment
from penstock.checkpoint.job_dir import METADATA, JobDir
from penstock.checkpoint.metadata import in_flight_file
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.connectors.kept_files import prove_file
from penstock.errors import CorruptMetadataError, NotASavepointError
from penstock.ids import OperatorUid
from penstock.job.restore import Snapshot
from penstock.recovery.resolve import Origin
from penstock.savepoint.read import verify_files
from penstock.state.backends.base import StatePlace
from penstock.state.backends.registry import backend_named
from penstock.task.layout import file_name

_PROVEN_AT_ONCE = 4


def read_snapshot(job_dir: JobDir, origin: Origin) -> Snapshot:
    """Read the metadata of a snapshot.

    Raises:
        NotASavepointError: what the user named is no snapshot.
        CorruptMetadataError: it is missing, damaged, or not the one the journal means.
    """
    path = job_dir.located(str(origin.path))
    path = path.parent if path.name == METADATA else path
    file = path / METADATA
    if origin.checkpoint is None and not file.exists():
        raise NotASavepointError(str(origin.path), f"there is no {METADATA} in it")
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise CorruptMetadataError(str(file), "it is missing") from None
    metadata = decode_metadata(data, str(file))
    if origin.crc is not None and zlib.crc32(data) != origin.crc:
        raise CorruptMetadataError(str(file), "it is not the file that the journal means")
    return Snapshot(
        metadata,
        path,
        is_own=origin.checkpoint is not None,
        is_committed=origin.commits_done,
    )


def prove(snapshot: Snapshot) -> None:
    """Read every state file of a snapshot and check that it is the one that was written.

    Raises:
        CorruptStateError: if one is missing, damaged or another one.
    """
    with ThreadPoolExecutor(_PROVEN_AT_ONCE) as pool:
        for proof in [pool.submit(check) for check in _checks(snapshot)]:
            proof.result()


def _checks(snapshot: Snapshot) -> Iterator[Callable[[], None]]:
    for operator in snapshot.metadata.operators:
        if operator.source is not None and (kept := operator.source.kept) is not None:
            source = kept.seen_from(snapshot.path)
            yield from (partial(prove_file, source, file) for file in kept.files)
        for saved in operator.savepoint:
            yield partial(verify_files, snapshot.path, [saved])
        for state in operator.in_flight:
            for segment in (s for entry in state.entries for s in entry):
                file = snapshot.path / in_flight_file(operator.uid, state, segment)
                yield partial(prove_segment, file, segment)
        directory = snapshot.shared / file_name(OperatorUid(operator.uid))
        for subtask, ref in enumerate(operator.keyed):
            place = StatePlace(directory / str(subtask), directory)
            yield partial(backend_named(operator.backend or "").verify, place, ref)
