"""Lists the files below the paths of a file source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.common.config.locations import parse_location
from penstock.common.storage_url import Location, StorageUrl
from penstock.connectors.formats.input_file import FileIdentity
from penstock.connectors.formats.stored_input import stored_file
from penstock.errors import MissingPathError, RemotePathError
from penstock.storage.storages import storage_at

_NO_DEVICE = (0, 0)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class Listing:
    """All files at or below some paths, sorted, and the device and inode of each of these paths.

    A path that is another directory than before, such as a mount point after an unmount, says
    nothing about the files that were below it.
    """

    files: dict[str, FileIdentity]
    roots: tuple[tuple[int, int], ...]
    empty: tuple[str, ...] = ()
    """The places in stores where there is nothing: a store has no directories without files."""


def place_of(path: str | os.PathLike[str]) -> Location:
    """Return an absolute path, or the place in a store that a URL names.

    Raises:
        RemotePathError: it is a URL of another kind.
    """
    text = os.fspath(path)
    scheme, separator, rest = text.partition(":/")
    if separator and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    if separator and _SCHEME.fullmatch(scheme):
        try:
            place = parse_location(text)
        except ValueError:
            raise RemotePathError(text) from None
        if isinstance(place, StorageUrl):
            return place
        raise RemotePathError(text)
    return Path(text).absolute()


def list_files(paths: Iterable[Location]) -> Listing:
    """Return all files at or below some paths.

    Hidden files and directories below a path, whose names start with ``.`` or ``_``, are skipped.

    Raises:
        MissingPathError: one of the paths does not exist.
        OSError: a directory cannot be read: its files must not look as if they were removed.
    """
    found: dict[str, FileIdentity] = {}
    roots: list[tuple[int, int]] = []
    empty: list[str] = []
    for root in paths:
        if isinstance(root, StorageUrl):
            stored = _stored_files(root)
            if not stored:
                empty.append(str(root))
            found |= {path: file for path, file in stored.items() if _is_visible(root, path)}
            roots.append(_NO_DEVICE)
            continue
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
    return Listing(dict(sorted(found.items())), tuple(roots), tuple(empty))


def _stored_files(root: StorageUrl) -> dict[str, FileIdentity]:
    entries = storage_at(root).entries("")
    if entries:
        return {f"{root}/{entry.path}": FileIdentity.of_stored(entry) for entry in entries}
    found = stored_file(root)
    return {} if found is None else {str(root): FileIdentity.of_stored(found)}


def _is_visible(root: StorageUrl, path: str) -> bool:
    return all(map(_visible, path[len(str(root)) + 1 :].split("/")))


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
