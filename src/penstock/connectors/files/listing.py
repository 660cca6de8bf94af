"""Lists the files below the paths of a file source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.errors import MissingPathError


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path; ``file:`` URIs are accepted, other schemes are rejected."""
    text = os.fspath(path)
    scheme, separator, rest = text.partition(":/")
    if separator and scheme == "file":
        return Path("/" + rest.lstrip("/"))
    if separator and scheme.isalnum():
        message = f"files are read and written at local or mounted paths; got {text!r}"
        raise ValueError(message)
    return Path(text).absolute()


def list_files(roots: Iterable[Path]) -> dict[str, int]:
    """Return the sizes of all files at or below the roots, sorted by path.

    Hidden files and directories below a root, whose names start with ``.`` or ``_``, are skipped.
    """
    found: dict[str, int] = {}
    for root in roots:
        if not root.exists():
            raise MissingPathError(str(root))
        for path in _walk(root) if root.is_dir() else [str(root)]:
            try:
                found[path] = Path(path).stat().st_size
            except FileNotFoundError:
                continue  # removed since it was listed
    return dict(sorted(found.items()))


def _walk(root: Path) -> Iterator[str]:
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = filter(_visible, subdirectories)
        for name in filter(_visible, names):
            yield f"{directory}{os.sep}{name}"


def _visible(name: str) -> bool:
    return not name.startswith((".", "_"))
