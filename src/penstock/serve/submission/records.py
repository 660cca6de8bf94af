"""What is stored of a submitted job: what runs, each of its starts, and their processes.

<upload dir>/jobs/<job id>/submission.json    the program, and its settings without credentials
                          settings.yaml       its settings; only its owner may read them
                          arguments.json      its arguments; only its owner may read them
                          program/            the program, unpacked
                          work/               the current directory of its processes
                          starts/1/request.json   that, and from what, the job is to be started
                                   process.json   the process that does so; created by itself
                                   end.json       how that has ended
                                   driver.log     what it and the driver have printed
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from penstock.common.new_files import create_file
from penstock.common.text.tolerant_json import decode_json, encode_json
from penstock.storage.contract import Storage
from penstock.storage.durable_files import sync_directory, sync_file
from penstock.storage.storages import storage_at

FORMAT = 1
_OWNER_ONLY = 0o600
_SUBMISSION = "submission.json"
_REQUEST = "request.json"
_PROCESS = "process.json"
_END = "end.json"

T = TypeVar("T")


class Submission(msgspec.Struct, frozen=True):
    """A submitted job, without credentials."""

    job: str
    program: str
    """The id of the uploaded program."""
    entry: str
    """The file that runs, below the directory `program`."""
    submitted: float
    args: list[str] = []
    settings: dict[str, str] = {}
    format: int = FORMAT


class StartRequest(msgspec.Struct, frozen=True):
    """A request to start the job; there is at most one process for it, whatever dies meanwhile."""

    time: float
    restore_path: str | None = None
    """The snapshot that the user named."""
    fresh: bool = False
    id: str = ""
    """Distinguishes requests of servers that ask at the same time."""


class StartProcess(msgspec.Struct, frozen=True):
    """The process of a start: the supervisor of its drivers."""

    host: str
    machine: str
    pid: int
    started: int
    """When the process started: a pid may be used again, but not with the same start."""
    time: float


class StartEnd(msgspec.Struct, frozen=True):
    """How the process of a start ended by itself."""

    code: int
    time: float


@dataclass(frozen=True, slots=True)
class StartDir:
    """The directory of one start of a submitted job."""

    path: Path
    number: int

    @property
    def log(self) -> Path:
        """What the process and its drivers have printed."""
        return self.path / "driver.log"

    @property
    def request(self) -> StartRequest | None:
        """What was requested; None if it cannot be read."""
        return self._read(_REQUEST, StartRequest)

    @property
    def process(self) -> StartProcess | None:
        """The process; None if it has not started yet."""
        return self._read(_PROCESS, StartProcess)

    @property
    def end(self) -> StartEnd | None:
        """How the process ended; None if it runs, or died."""
        return self._read(_END, StartEnd)

    def write_request(self, request: StartRequest) -> None:
        """Store a request before its process is started.

        The directory of the job exists: it is never created here, where it may just be deleted.

        Raises:
            FileExistsError: this start has been requested already.
            FileNotFoundError: the job is deleted.
        """
        self.path.parent.mkdir(exist_ok=True)
        self.path.mkdir(exist_ok=True)
        sync_directory(self.path.parent)
        self._storage.create(_REQUEST, encode_json(request))

    def claim(self, process: StartProcess) -> bool:
        """Become the process of this start; False if it has or had one."""
        try:
            self._storage.create(_PROCESS, encode_json(process))
        except FileExistsError:
            return False
        return True

    def write_end(self, end: StartEnd) -> None:
        """Store how the process ended; the first one counts."""
        with suppress(FileExistsError):
            self._storage.create(_END, encode_json(end))

    @property
    def _storage(self) -> Storage:
        return storage_at(self.path)

    def _read(self, name: str, kind: type[T]) -> T | None:
        with suppress(FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return decode_json(self._storage.read(name), kind)
        return None


@dataclass(frozen=True, slots=True)
class SubmissionDir:
    """The directory of a submitted job; it exists completely or not at all."""

    path: Path

    @property
    def job(self) -> str:
        """The id of the job."""
        return self.path.name

    @property
    def exists(self) -> bool:
        """Whether the job was submitted and is not deleted."""
        return (self.path / _SUBMISSION).is_file()

    @property
    def program(self) -> Path:
        """The job's copy of the program."""
        return self.path / "program"

    @property
    def settings(self) -> Path:
        """The settings, with credentials."""
        return self.path / "settings.yaml"

    @property
    def arguments(self) -> Path:
        """The arguments, with credentials."""
        return self.path / "arguments.json"

    @property
    def work(self) -> Path:
        """The current directory of the job's processes."""
        return self.path / "work"

    @property
    def starts(self) -> list[StartDir]:
        """The starts whose files are still there, oldest first."""
        names = storage_at(self.path / "starts").children("")
        numbers = sorted(int(name) for name in names if name.isascii() and name.isdecimal())
        return [self.start(number) for number in numbers]

    def start(self, number: int) -> StartDir:
        """Return the directory of a start, which may not exist."""
        return StartDir(self.path / "starts" / str(number), number)

    def read(self) -> Submission | None:
        """Return what was submitted; None if there is nothing, or it cannot be read."""
        with suppress(OSError, msgspec.DecodeError):
            return decode_json(storage_at(self.path).read(_SUBMISSION), Submission)
        return None

    def fill(
        self, submission: Submission, settings: Mapping[str, str], arguments: Sequence[str]
    ) -> None:
        """Write everything but the program and the starts into a directory under another name."""
        _write_secret(self.settings, yaml.safe_dump(dict(settings), allow_unicode=True))
        _write_secret(self.arguments, json.dumps(list(arguments)))
        self.work.mkdir()
        storage_at(self.path).create(_SUBMISSION, msgspec.json.format(encode_json(submission)))

    def give_name(self, path: Path) -> SubmissionDir:
        """Give the complete directory its name, unless a directory has this name.

        Raises:
            FileExistsError: the job has been submitted already.
        """
        for place, _, names in os.walk(self.path):
            for name in names:
                sync_file(Path(place, name))
            sync_directory(Path(place))
        try:
            # A directory can take the name of an empty one only, and no submission is empty.
            self.path.rename(path)
        except OSError as error:
            if path.exists():
                raise FileExistsError(path) from error
            raise
        sync_directory(path.parent)
        return SubmissionDir(path)


def _write_secret(path: Path, text: str) -> None:
    with create_file(path) as file:
        path.chmod(_OWNER_ONLY)
        file.write(text.encode())
