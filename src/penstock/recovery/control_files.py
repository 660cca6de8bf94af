"""The files in a job's `control` directory, which any of its users may write.

Only small regular files are read: a link could lead anywhere, a pipe would block the reader. What
cannot be used is moved into a subdirectory, so that it is looked at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

QUARANTINE = "quarantine"
_QUARANTINED_KEPT = 16


class UnusableFileError(Exception):
    """A file that cannot be a request or an answer, or cannot be read; the message says why."""


class ControlFiles:
    """The files directly in one directory, by name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ignored: set[str] = set()
        """Unusable files that could not be moved away."""

    def names(self) -> list[str]:
        """Return all names, sorted, without those that are ignored."""
        try:
            found = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            found = []
        self._ignored.intersection_update(found)
        return sorted(name for name in found if name not in self._ignored)

    def read(self, name: str, longest: int) -> bytes:
        """Return the content of a file of at most `longest` bytes.

        Raises:
            FileNotFoundError: if it does not exist.
            UnusableFileError: if it cannot be read, is too large, or no regular file.
        """
        try:
            file = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                _check(os.fstat(file), longest)
                with open(file, "rb", closefd=False) as opened:
                    return opened.read(longest)
            finally:
                os.close(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnusableFileError(error.strerror or str(error)) from error

    def quarantine(self, name: str) -> None:
        """Move a file away, or ignore it from now on if that is impossible."""
        away = self._directory / QUARANTINE
        try:
            if away.is_symlink():
                message = "it leads elsewhere"
                raise OSError(message)
            away.mkdir(exist_ok=True)
            (self._directory / name).rename(away / name)
        except FileNotFoundError:
            return
        except OSError:
            self._ignored.add(name)
            return
        with suppress(OSError):
            _delete_oldest(list(away.iterdir()))


def _check(facts: os.stat_result, longest: int) -> None:
    if not stat.S_ISREG(facts.st_mode):
        message = "it is not a regular file"
        raise UnusableFileError(message)
    if facts.st_size > longest:
        message = f"it has {facts.st_size:,} bytes, more than {longest:,}"
        raise UnusableFileError(message)


def _delete_oldest(files: Collection[Path]) -> None:
    # Names of requests begin with the time.
    for file in sorted(files)[: max(0, len(files) - _QUARANTINED_KEPT)]:
        with suppress(OSError):
            file.unlink()
