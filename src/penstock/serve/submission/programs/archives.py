"""Checks and unpacks a program that is a zip file; its content is not trusted."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from penstock.common.new_files import create_file
from penstock.errors import InvalidProgramError, ProgramTooLargeError

_MAIN = ("__main__.py", "main.py")
_MOST_FILES = 10_000
_LONGEST_NAME = 1024
_PIECE_BYTES = 1 << 20
_ENCRYPTED = 0x1
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What `zipfile` raises for damaged files, unknown compressions and encrypted members."""


def check_archive(path: Path, name: str, max_bytes: int) -> None:
    """Refuse a zip file that is damaged, unsafe to unpack or without a main module.

    Raises:
        InvalidProgramError: it is one of these.
        ProgramTooLargeError: it is too large when it is unpacked, as it says itself.
    """
    with _opened(path, name) as archive:
        members = _members(archive, name, max_bytes)
        if not {member.filename for member in members} & set(_MAIN):
            raise InvalidProgramError(name, f"it has neither {_MAIN[0]} nor {_MAIN[1]} at its top")


def unpack(path: Path, name: str, directory: Path, max_bytes: int, entry: str | None) -> Path:
    """Unpack a zip file into an empty directory, and return the main file, or that of a module.

    Raises:
        InvalidProgramError: it is damaged, unsafe, or has no such module.
        ProgramTooLargeError: it is too large, whatever it says itself.
    """
    left = max_bytes
    with _opened(path, name) as archive:
        for member in _members(archive, name, max_bytes):
            target = directory.joinpath(*PurePosixPath(member.filename).parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as packed, create_file(target) as file:
                    while piece := packed.read(_PIECE_BYTES):
                        left -= len(piece)
                        if left < 0:
                            raise ProgramTooLargeError(max_bytes)
                        file.write(piece)
            except _DAMAGED as error:
                reason = f"{member.filename!r} in it cannot be unpacked: {error}"
                raise InvalidProgramError(name, reason) from error
            except (FileExistsError, NotADirectoryError) as error:
                reason = f"{member.filename!r} in it has the name of another file or directory"
                raise InvalidProgramError(name, reason) from error
    return _entry(directory, name, entry)


def _opened(path: Path, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except _DAMAGED as error:
        raise InvalidProgramError(name, f"it is no zip file: {error}") from error


def _members(archive: zipfile.ZipFile, name: str, max_bytes: int) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, after all of its names and sizes were checked."""
    members = archive.infolist()
    if len(members) > _MOST_FILES:
        raise InvalidProgramError(name, f"it has more than {_MOST_FILES} files")
    if sum(member.file_size for member in members) > max_bytes:
        raise ProgramTooLargeError(max_bytes)
    seen: set[str] = set()
    for member in members:
        if (reason := _unsafe(member)) is not None or member.filename in seen:
            reason = reason or "appears twice"
            raise InvalidProgramError(name, f"{member.filename[:200]!r} in it {reason}")
        seen.add(member.filename)
    return [member for member in members if not member.is_dir()]


def _unsafe(member: zipfile.ZipInfo) -> str | None:
    # The name as it is stored: `filename` ends at the first NUL.
    name, kind = member.orig_filename, stat.S_IFMT(member.external_attr >> 16)
    parts = name.removesuffix("/").split("/")
    if len(name) > _LONGEST_NAME or not name.isprintable() or "\\" in name:
        return "has a name that is too long or has characters that are not allowed"
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "has a name that leads out of the archive"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    return "is encrypted" if member.flag_bits & _ENCRYPTED else None


def _entry(directory: Path, name: str, entry: str | None) -> Path:
    candidates: tuple[str, ...] = _MAIN
    if entry is not None:
        if not _MODULE.fullmatch(entry):
            raise InvalidProgramError(name, f"the entry class {entry!r} is no name of a module")
        path = entry.replace(".", "/")
        candidates = (f"{path}.py", f"{path}/__main__.py")
    for candidate in candidates:
        if (directory / candidate).is_file():
            return directory / candidate
    raise InvalidProgramError(name, f"it has none of {', '.join(candidates)}")
