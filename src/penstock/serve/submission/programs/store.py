"""The store of uploaded programs: files in a directory of the server."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from penstock.common.new_files import create_file
from penstock.errors import InvalidProgramError, ProgramTooLargeError, UnknownProgramError
from penstock.serve.submission.programs.archives import check_archive, unpack
from penstock.storage.durable_files import sync_directory, sync_file

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,127}"
_ID = re.compile(f"({_UUID})_({_NAME})")
STAGED = ".new-"
_OWNER_ONLY = 0o600
PYTHON, ARCHIVE = ".py", ".zip"


@dataclass(frozen=True, slots=True)
class Program:
    """One uploaded program: a Python file, or a zip file with a main module."""

    path: Path
    uploaded: float

    @property
    def id(self) -> str:
        """The id, as Flink's: a random one, then the name."""
        return self.path.name

    @property
    def name(self) -> str:
        """The name of the uploaded file."""
        return self.path.name.partition("_")[2]

    @property
    def is_archive(self) -> bool:
        """Whether it has to be unpacked."""
        return self.path.suffix == ARCHIVE


class ProgramStore:
    """Uploaded programs by id; any thread may call.

    A program never changes. It is listed as soon as it is complete, and a submitted job has a copy
    of its own, so that a deletion does no harm to jobs.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes

    @property
    def max_bytes(self) -> int:
        """The maximum size of a program."""
        return self._max_bytes

    @property
    def scratch(self) -> Path:
        """Where files and directories that begin with `.new-` are deleted by the next server."""
        return self._directory

    def delete_unfinished(self) -> None:
        """Delete what a killed server has left; called before any upload."""
        for path in self._directory.glob(f"{STAGED}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def add(self, name: str, pieces: Iterable[bytes]) -> Program:
        """Store a program.

        Raises:
            InvalidProgramError: its name or content is not that of a program.
            ProgramTooLargeError: it is too large.
        """
        check_name(name)
        id_ = f"{uuid.uuid4()}_{name}"
        staged, path = self._directory / f"{STAGED}{id_}", self._directory / id_
        try:
            with create_file(staged) as file:
                staged.chmod(_OWNER_ONLY)
                size = 0
                for piece in pieces:
                    size += len(piece)
                    if size > self._max_bytes:
                        raise ProgramTooLargeError(self._max_bytes)
                    file.write(piece)
            if path.suffix == ARCHIVE:
                check_archive(staged, name, self._max_bytes)
            sync_file(staged)
            staged.rename(path)
        finally:
            staged.unlink(missing_ok=True)
        sync_directory(self._directory)
        return _program(path)

    def list(self) -> list[Program]:
        """Return all programs, the newest first."""
        programs = []
        for path in self._directory.iterdir():
            if _ID.fullmatch(path.name):
                try:
                    programs.append(_program(path))
                except FileNotFoundError:
                    continue  # deleted meanwhile
        return sorted(programs, key=lambda program: (-program.uploaded, program.id))

    def find(self, id_: str) -> Program:
        """Return a program.

        Raises:
            UnknownProgramError: there is none with this id.
        """
        path = self._directory / id_ if _ID.fullmatch(id_) else None
        if path is None or not path.is_file():
            raise UnknownProgramError(id_)
        return _program(path)

    def delete(self, id_: str) -> None:
        """Delete a program.

        Raises:
            UnknownProgramError: there is none with this id.
        """
        self.find(id_).path.unlink(missing_ok=True)

    def copy_to(self, program: Program, directory: Path, entry: str | None) -> Path:
        """Copy a program into a new directory, and return the file there that is to be run.

        Raises:
            InvalidProgramError: it has no such entry.
            ProgramTooLargeError: it is too large when it is unpacked.
        """
        directory.mkdir()
        if program.is_archive:
            return unpack(program.path, program.name, directory, self._max_bytes, entry)
        copy = directory / program.name
        with create_file(copy) as file:
            file.write(program.path.read_bytes())
        return copy


def check_name(name: str) -> None:
    """Refuse a file name that is not that of a program, or that could lead elsewhere.

    Raises:
        InvalidProgramError: it is.
    """
    if not re.fullmatch(_NAME, name) or not name.endswith((PYTHON, ARCHIVE)):
        reason = (
            f"its name must end with {PYTHON} or {ARCHIVE} and have up to 128 letters, digits, "
            "spaces and '_', '-', '+', '.', a letter, digit or '_' first"
        )
        raise InvalidProgramError(name[:200], reason)


def _program(path: Path) -> Program:
    return Program(path, path.stat().st_mtime)
