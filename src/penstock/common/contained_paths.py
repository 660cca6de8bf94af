"""Resolves names that come from outside, such as from a snapshot, inside a directory."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import UnsafeNameError


def path_inside(root: Path, name: str) -> Path:
    """Return the path of a name below a root: relative, or absolute with the root as its beginning.

    Symbolic links are followed as usual: who can create them below the root needs no name.

    Raises:
        UnsafeNameError: the name is empty, leads out of the root, or cannot be a file's name.
    """
    path = root / name
    if "\0" in name or path == root or not path.is_relative_to(root):
        raise UnsafeNameError(name, str(root))
    if ".." in path.relative_to(root).parts:
        raise UnsafeNameError(name, str(root))
    return path


def counterpart(own: Path, name: str, levels: int) -> Path:
    """Return a directory that a snapshot names and that is to another job what ``own`` is to this.

    It has the same last names, this many. What is above them is where that job's user put it.

    Raises:
        UnsafeNameError: it has other names.
    """
    path = Path(name)
    if "\0" in name or path.parts[-levels:] != own.parts[-levels:]:
        raise UnsafeNameError(name, "/".join(("*", *own.parts[-levels:])))
    return path
