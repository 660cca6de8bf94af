"""A job's directory below the checkpoint directory: the one place that spells its paths.

<checkpoint dir>/<job>/job.json      what the job is
                       birth         what tells it from a job that was here before it
                       driver.json   who drives it now
                       journal/      what counts, in order
                       chk-7/        _metadata of checkpoint 7
                       shared/       state files, used by several checkpoints
                       savepoints/   the metadata of savepoints, which their owners may move
                       connectors/   what sources and sinks keep, by the job's lives
                       history/      what checkpoints cost, recoveries, exceptions
                       control/      requests from outside and their answers
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.checkpoint.storage import LocalStorage
from penstock.errors import AmbiguousJobError, InvalidJobError, UnknownJobError
from penstock.ids import CheckpointId, JobKey

__all__ = ["JobDir", "JobFacts", "PlannedStep", "find_job", "job_key", "jobs_in"]

METADATA = "_metadata"
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_CHECKPOINT = re.compile(r"chk-([1-9][0-9]*)")
_SAVEPOINT = re.compile(r"([1-9][0-9]*)\.metadata")
_LONGEST_SLUG = 40
_JOB = "job.json"
_BIRTH = "birth"


class PlannedStep(msgspec.Struct, frozen=True):
    """One operator of a job, as far as a reader of its checkpoints needs it."""

    uid: str
    name: str
    parallelism: int = 1


class JobFacts(msgspec.Struct, frozen=True):
    """What a job is; written by every attempt before it starts."""

    name: str
    created: float
    program: str | None = None
    args: list[str] = []
    plan: list[PlannedStep] = []


@dataclass(frozen=True, slots=True)
class JobDir:
    """The paths of one job."""

    root: Path
    """The checkpoint directory, where other jobs may be too."""
    key: JobKey

    @property
    def path(self) -> Path:
        """Everything of this job lies below."""
        return self.root / self.key

    @property
    def storage(self) -> LocalStorage:
        """The job's directory as a storage; the journal and its like go through it."""
        return LocalStorage(self.path)

    @property
    def journal(self) -> Path:
        """What counts, in order."""
        return self.path / "journal"

    @property
    def shared(self) -> Path:
        """State files of all attempts and checkpoints, by operator and subtask."""
        return self.path / "shared"

    @property
    def control(self) -> Path:
        """Requests from outside and their answers."""
        return self.path / "control"

    @property
    def driver(self) -> Path:
        """Who drives the job now."""
        return self.path / "driver.json"

    @property
    def job(self) -> Path:
        """What the job is."""
        return self.path / _JOB

    def birth(self) -> str:
        """Return what tells this directory from one that was in its place before and is gone.

        What hosts keep of a job has its path in its name, and outlives it.
        """
        with contextlib.suppress(FileNotFoundError):
            return self.storage.read(_BIRTH).decode()
        with contextlib.suppress(FileExistsError):
            self.storage.create(_BIRTH, os.urandom(8).hex().encode())
        return self.storage.read(_BIRTH).decode()

    def chk(self, checkpoint: CheckpointId | int) -> Path:
        """The directory of a checkpoint."""
        return self.path / f"chk-{checkpoint}"

    def named(self, path: str) -> str:
        """Return a snapshot's path as the journal has it.

        What lies in the job's directory is named from there, so that it may be moved as a whole.
        """
        place = Path(path)
        return str(place.relative_to(self.path)) if place.is_relative_to(self.path) else path

    def located(self, named: str) -> Path:
        """Return where a snapshot lies that the journal names."""
        return self.path / named

    def metadata(self, checkpoint: CheckpointId | int) -> Path:
        """The file that is a checkpoint."""
        return self.chk(checkpoint) / METADATA

    def savepoint(self, checkpoint: CheckpointId | int) -> Path:
        """A copy of a savepoint's metadata: what it needs, wherever it is moved to."""
        return self.path / "savepoints" / f"{checkpoint}.metadata"

    def connectors(self, life: str) -> Path:
        """What sources and sinks keep in one life of the job."""
        return self.path / "connectors" / life

    def history(self, checkpoint: CheckpointId | int) -> Path:
        """What is known of a checkpoint, also of a failed one."""
        return self.path / "history" / f"{checkpoint:012d}.json"

    def checkpoints_on_disk(self) -> list[CheckpointId]:
        """Return the checkpoints that have a directory, whether they count or not, sorted."""
        return _numbers(self.path, _CHECKPOINT)

    def savepoints_on_disk(self) -> list[CheckpointId]:
        """Return the savepoints that there is a copy of, whether they count or not, sorted."""
        return _numbers(self.path / "savepoints", _SAVEPOINT)

    def write_facts(self, facts: JobFacts) -> None:
        """Say what the job is; saying it again replaces it."""
        self.storage.replace(_JOB, msgspec.json.format(msgspec.json.encode(facts)))

    def read_facts(self) -> JobFacts | None:
        """Return what the job is, None if nobody has said it readably."""
        try:
            return msgspec.json.decode(self.storage.read(_JOB), type=JobFacts)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def _numbers(directory: Path, names: re.Pattern[str]) -> list[CheckpointId]:
    if not directory.is_dir():
        return []
    found = (names.fullmatch(path.name) for path in directory.iterdir())
    return sorted(CheckpointId(int(match[1])) for match in found if match)


def job_key(given: str | None, job_name: str) -> JobKey:
    """Return the name of a job's directory: the id the user gave, else one made of the name.

    The same name always makes the same id, and other names make other ones.

    Raises:
        InvalidJobError: if the given id cannot name a directory.
    """
    if given is not None:
        if not _KEY.fullmatch(given):
            msg = (
                f"job id {given!r} cannot name a directory: use up to 128 letters, digits, "
                "'_', '-' and '.', the first of them no '-' and no '.'"
            )
            raise InvalidJobError(msg)
        return JobKey(given)
    slug = re.sub(r"[^a-z0-9]+", "-", job_name.lower())[:_LONGEST_SLUG].strip("-")
    digest = hashlib.blake2b(job_name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return JobKey(f"{slug or 'job'}-{digest}")


def jobs_in(directory: Path) -> list[JobDir]:
    """Return the jobs in a checkpoint directory, by id; none if it is not there."""
    if not directory.is_dir():
        return []
    places = (JobDir(directory, JobKey(path.name)) for path in sorted(directory.iterdir()))
    return [place for place in places if place.job.is_file() or place.journal.is_dir()]


def find_job(directory: Path, name_or_id: str) -> JobDir:
    """Return the job of an id, or the only one of a name.

    Raises:
        UnknownJobError: if there is none.
        AmbiguousJobError: if there are several of this name.
    """
    jobs = jobs_in(directory)
    by_id = [job for job in jobs if job.key == name_or_id]
    if by_id:
        return by_id[0]
    names = {job.key: facts.name for job in jobs if (facts := job.read_facts()) is not None}
    by_name = [job for job in jobs if names.get(job.key) == name_or_id]
    if len(by_name) == 1:
        return by_name[0]
    if by_name:
        fitting = tuple(job.key for job in by_name)
        raise AmbiguousJobError(str(directory), name_or_id, fitting)
    known = tuple(_shown(job.key, names.get(job.key)) for job in jobs)
    raise UnknownJobError(str(directory), name_or_id, known)


def _shown(key: JobKey, name: str | None) -> str:
    return key if name is None else f"{key} ({name!r})"
