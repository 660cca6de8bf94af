"""Lists the files below the paths of a file source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.connectors.formats.input_file import FileIdentity
from penstock.errors import MissingPathError, RemotePathError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Listing:
    """All files at or below some paths, sorted, and the device and inode of each of these paths.

    A path that is another directory than before, such as a mount point after an unmount, says
    nothing about the files that were below it.
    """

    files: dict[str, FileIdentity]
    roots: tuple[tuple[int, int], ...]


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path; ``file:`` URIs are accepted, other schemes are rejected."""
    text = os.fspath(path)
    scheme, separator, rest = text.partition(":/")
    if separator and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    if separator and _SCHEME.fullmatch(scheme):
        raise RemotePathError(text)
    return Path(text).absolute()


def list_files(paths: Iterable[Path]) -> Listing:
    """Return all files at or below some paths.

    Hidden files and directories below a path, whose names start with ``.`` or ``_``, are skipped.

    Raises:
        MissingPathError: one of the paths does not exist.
        OSError: a directory cannot be read: its files must not look as if they were removed.
    """
    found: dict[str, FileIdentity] = {}
    roots = []
    for root in paths:
        try:
            stat = root.stat()
        except FileNotFoundError:
            raise MissingPathError(str(root)) from None
        roots.append((stat.st_dev, stat.st_ino))
        for path in _walk(root) if root.is_dir() else [str(root)]:
            try:
                # A Path for each file would cost more than its stat.
                found[path] = FileIdentity.of(os.stat(path))  # noqa: PTH116
            except FileNotFoundError:
                continue  # removed since it was listed
    return Listing(dict(sorted(found.items())), tuple(roots))


def _walk(root: Path) -> Iterator[str]:
    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error
        if error.filename == str(root):
            raise MissingPathError(str(root)) from None

    for directory, subdirectories, names in os.walk(root, onerror=failed):
        subdirectories[:] = filter(_visible, subdirectories)
        for name in filter(_visible, names):
            yield f"{directory}{os.sep}{name}"


def _visible(name: str) -> bool:
    return not name.startswith((".", "_"))
