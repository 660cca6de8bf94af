"""The directory of a job below the checkpoint directory; the only module that spells its paths.

<checkpoint dir>/<job>/job.json      name, program and plan of the job
                       birth         the job instance id
                       driver.json   the lease of the driver that runs it
                       journal/      attempts, completed checkpoints and commits, one file each
                       chk-7/        _metadata of checkpoint 7, and files that only it refers to
                       shared/       state files, referred to by several checkpoints
                       savepoints/   copies of the metadata of savepoints, which users may move
                       connectors/   files of sources and sinks, by restore lineage
                       history/      statistics of checkpoints, recoveries, exceptions
                       control/      requests of clients and their answers
                       pins/         of readers, on checkpoints that they read
                       live.json     figures of the running job, while somebody watches it
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.checkpoint.storage.job_facts import JobFacts as JobFacts
from penstock.checkpoint.storage.job_facts import PlannedStep as PlannedStep
from penstock.common.config.locations import below
from penstock.common.live_figures import LiveFigures
from penstock.common.storage_url import Location, names_below
from penstock.common.text.tolerant_json import decode_json, encode_json
from penstock.errors import AmbiguousJobError, InvalidJobError, UnknownJobError
from penstock.ids import CheckpointId, JobKey
from penstock.storage.contract import Storage
from penstock.storage.storages import storage_at

METADATA = "_metadata"
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_CHECKPOINT = re.compile(r"chk-([1-9][0-9]*)")
_SAVEPOINT = re.compile(r"([1-9][0-9]*)\.metadata")
_LONGEST_SLUG = 40
_JOB = "job.json"
_INSTANCE = "birth"
_LIVE = "live.json"


@dataclass(frozen=True, slots=True)
class JobDir:
    """The paths of one job."""

    root: Location
    """The checkpoint directory, which may hold other jobs, too."""
    key: JobKey
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """How stores are reached in which there are snapshots that the journal names."""

    @property
    def path(self) -> Location:
        """The job's directory."""
        return self.root / self.key

    @property
    def storage(self) -> Storage:
        """The job's directory as a storage, for the journal and other small files."""
        return storage_at(self.path)

    @property
    def journal(self) -> Location:
        """The directory of the journal."""
        return self.path / "journal"

    @property
    def shared(self) -> Location:
        """The directory of state files, by operator and subtask."""
        return self.path / "shared"

    @property
    def control(self) -> Location:
        """The directory of requests and answers."""
        return self.path / "control"

    @property
    def driver(self) -> Location:
        """The lease of the driver."""
        return self.path / "driver.json"

    @property
    def job(self) -> Location:
        """The file with the `JobFacts`."""
        return self.path / _JOB

    @property
    def live(self) -> Location:
        """The file with the `LiveFigures`."""
        return self.path / _LIVE

    def job_instance(self) -> str:
        """Return an id that differs from those of all earlier jobs in this directory.

        Directories on hosts are named after the path of the job, and may outlive it.
        """
        if (found := self.existing_instance()) is not None:
            return found
        # Of two drivers that start at the same time, both use what one of them has created.
        with contextlib.suppress(FileExistsError):
            self.storage.create(_INSTANCE, os.urandom(8).hex().encode())
        return self.storage.read(_INSTANCE).decode()

    def existing_instance(self) -> str | None:
        """Return this id, None if no driver has created one.

        Raises:
            OSError: it cannot be read now.
        """
        with contextlib.suppress(FileNotFoundError):
            return self.storage.read(_INSTANCE).decode()
        return None

    def checkpoint_dir(self, checkpoint: CheckpointId | int) -> Location:
        """The directory of a checkpoint."""
        return self.path / checkpoint_dir_name(checkpoint)

    def metadata(self, checkpoint: CheckpointId | int) -> Location:
        """The metadata file of a checkpoint."""
        return self.checkpoint_dir(checkpoint) / METADATA

    def delete_checkpoint(self, checkpoint: CheckpointId) -> None:
        """Delete the directory of a checkpoint; may be interrupted and repeated."""
        self.storage.delete_tree(checkpoint_dir_name(checkpoint))

    def savepoint(self, checkpoint: CheckpointId | int) -> Location:
        """The job's copy of a savepoint's metadata, which stays when the savepoint is moved."""
        return self.path / self.savepoint_copy(checkpoint)

    @staticmethod
    def savepoint_copy(checkpoint: CheckpointId | int) -> str:
        """Return the path of this copy in the job's storage."""
        return f"savepoints/{checkpoint}.metadata"

    def connectors(self, lineage: str) -> Location:
        """The directory of the files of sources and sinks in one restore lineage."""
        return self.path / "connectors" / lineage

    def to_journal_path(self, location: Location | str) -> str:
        """Return the place of a snapshot as the journal has it.

        Inside the job's directory it is relative, so that the directory can be moved as a whole;
        that of a checkpoint also if it is spelled with links.
        """
        checkpoint = self.checkpoint_at(str(location))
        if checkpoint is not None:
            return checkpoint_dir_name(checkpoint)
        place = self.from_journal_path(str(location))
        return names_below(self.path, place) or str(place)

    def from_journal_path(self, path: str) -> Location:
        """Return where a snapshot is that the journal names."""
        return below(self.path, path, self.options or None)

    def has_metadata(self, path: str) -> bool:
        """Whether there is a complete snapshot at a path in the journal.

        Raises:
            OSError: it cannot be seen whether there is one.
        """
        return storage_at(self.from_journal_path(path)).exists(METADATA)

    def checkpoint_at(self, path: str) -> CheckpointId | None:
        """Return which of the job's checkpoints a path in the journal names, however spelled."""
        place = resolved(self.from_journal_path(path))
        found = _CHECKPOINT.fullmatch(place.name)
        if found is None or place.parent != resolved(self.path):
            return None
        return CheckpointId(int(found[1]))

    def checkpoints_on_disk(self) -> list[CheckpointId]:
        """Return the checkpoints that have a directory, complete or not, sorted."""
        return self._numbers("", _CHECKPOINT)

    def savepoints_on_disk(self) -> list[CheckpointId]:
        """Return the savepoints that there is a copy of, complete or not, sorted."""
        return self._numbers("savepoints", _SAVEPOINT)

    def _numbers(self, directory: str, names: re.Pattern[str]) -> list[CheckpointId]:
        found = (names.fullmatch(name) for name in self.storage.children(directory))
        return sorted(CheckpointId(int(match[1])) for match in found if match)

    def write_facts(self, facts: JobFacts) -> None:
        """Write what the job is, replacing what was written before."""
        self.storage.replace(_JOB, msgspec.json.format(encode_json(facts)))

    def read_facts(self) -> JobFacts | None:
        """Return what the job is, None if that is missing or cannot be read."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return decode_json(self.storage.read(_JOB), JobFacts)
        return None

    def write_live(self, figures: LiveFigures) -> None:
        """Write the figures of the running job, replacing earlier ones."""
        self.storage.replace(_LIVE, encode_json(figures))

    def read_live(self) -> LiveFigures | None:
        """Return the newest figures, None if there are none that can be read.

        A driver writes them only while somebody watches the job, and leaves them when it dies: see
        `LiveFigures.is_stale`.
        """
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return decode_json(self.storage.read(_LIVE), LiveFigures)
        return None

    def delete_live(self) -> None:
        """Delete the figures, if there are any."""
        self.storage.delete(_LIVE)


def checkpoint_dir_name(checkpoint: CheckpointId | int) -> str:
    """Return the name of a checkpoint's directory."""
    return f"chk-{checkpoint}"


def checkpoint_of(name: str) -> CheckpointId | None:
    """Return the checkpoint whose directory has a name, None if it is no such name."""
    found = _CHECKPOINT.fullmatch(name)
    return None if found is None else CheckpointId(int(found[1]))


def resolved(location: Location) -> Location:
    """Return a local path without links; a place in a store has none."""
    return location.resolve() if isinstance(location, Path) else location


def job_key(job_id: str | None, job_name: str) -> JobKey:
    """Return the name of a job's directory: the configured id, else one made from the name.

    The same name always makes the same id, and other names make other ones.

    Raises:
        InvalidJobError: if the configured id cannot name a directory.
    """
    if job_id is not None:
        if not _KEY.fullmatch(job_id):
            msg = (
                f"job id {job_id!r} cannot name a directory: use up to 128 letters, digits, "
                "'_', '-' and '.', and do not start with '-' or '.'"
            )
            raise InvalidJobError(msg)
        return JobKey(job_id)
    slug = re.sub(r"[^a-z0-9]+", "-", job_name.lower())[:_LONGEST_SLUG].strip("-")
    digest = hashlib.blake2b(job_name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return JobKey(f"{slug or 'job'}-{digest}")


def jobs_in(directory: Location) -> list[JobDir]:
    """Return the jobs in a checkpoint directory, by id; none if it does not exist."""
    jobs = (JobDir(directory, JobKey(name)) for name in storage_at(directory).children(""))
    return [job for job in jobs if is_job(job)]


def inaccessible_in(directory: Location) -> list[str]:
    """Return the names in a checkpoint directory that may be jobs of other users."""
    if not isinstance(directory, Path) or not directory.is_dir():
        return []
    directories = (path for path in directory.iterdir() if path.is_dir())
    return sorted(p.name for p in directories if not os.access(p, os.R_OK | os.X_OK))


def is_job(job: JobDir) -> bool:
    """Whether there is a job in a directory that this user may read."""
    try:
        return not {_JOB, job.journal.name}.isdisjoint(job.storage.children(""))
    except OSError:
        return False  # only its owner may look into it


def find_job(directory: Location, name_or_id: str) -> JobDir:
    """Return the job with an id, or the only one with a name.

    Raises:
        UnknownJobError: if there is none.
        AmbiguousJobError: if there are several with this name.
    """
    jobs = jobs_in(directory)
    for job in jobs:
        if job.key == name_or_id:
            return job
    names = {job.key: facts.name for job in jobs if (facts := job.read_facts()) is not None}
    by_name = [job for job in jobs if names.get(job.key) == name_or_id]
    if len(by_name) == 1:
        return by_name[0]
    if by_name:
        raise AmbiguousJobError(str(directory), name_or_id, tuple(job.key for job in by_name))
    known = (f"{job.key} ({names[job.key]!r})" if job.key in names else job.key for job in jobs)
    raise UnknownJobError(str(directory), name_or_id, tuple(known))
