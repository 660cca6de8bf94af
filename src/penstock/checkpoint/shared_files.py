"""Who needs which state file.

Checkpoints share files: what did not change between two of them lies there once. A file may go
when its last holder lets go of it. Holders are retained checkpoints, cuts that are not complete
yet, and the running state itself, which the next checkpoint will refer to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from penstock.ids import is_no_later
from penstock.state.files import attempt_of

__all__ = ["SharedFiles", "sweep"]


class SharedFiles:
    """Holders and their files; deletes nothing itself and takes no locks.

    Whoever hands on files holds them in the new name first and releases the old name after:
    a file that was free for a moment may be gone.
    """

    def __init__(self) -> None:
        self._files: dict[str, set[Path]] = {}
        self._holders: dict[Path, set[str]] = {}

    def hold(self, holder: str, files: Iterable[Path]) -> None:
        """Let a holder need these files too; saying it again changes nothing."""
        mine = self._files.setdefault(holder, set())
        for file in files:
            mine.add(file)
            self._holders.setdefault(file, set()).add(holder)

    def release(self, holder: str) -> list[Path]:
        """Let a holder need nothing any more; return the files that nobody needs now."""
        return self._let_go(holder, self._files.pop(holder, set()))

    def replace(self, holder: str, files: Iterable[Path]) -> list[Path]:
        """Let a holder need exactly these files; return those that nobody needs now."""
        wanted = set(files)
        dropped = self._files.get(holder, set()) - wanted
        self.hold(holder, wanted)
        self._files[holder] -= dropped
        return self._let_go(holder, dropped)

    def holders(self, file: Path) -> frozenset[str]:
        """Return who needs a file."""
        return frozenset(self._holders.get(file, ()))

    def held(self) -> frozenset[Path]:
        """Return all files that somebody needs."""
        return frozenset(self._holders)

    def _let_go(self, holder: str, files: Iterable[Path]) -> list[Path]:
        freed = []
        for file in files:
            holders = self._holders[file]
            holders.discard(holder)
            if not holders:
                del self._holders[file]
                freed.append(file)
        return sorted(freed)


def sweep(shared_dir: Path, keep: Set[Path], attempt: str) -> list[Path]:
    """Delete what an attempt and older ones wrote and nobody names, and directories left empty.

    Called by an attempt that has won the journal, before its first task runs or behind its last:
    what was staged and no checkpoint took up goes here. Cut off, it may be called again. A
    driver that is taken over meanwhile does no harm: what later attempts write stays, and so do
    files whose name does not say who wrote them.

    Raises:
        ValueError: if `keep` names a file elsewhere; nothing is deleted then, because names that
            do not compare would make every file look unneeded.
    """
    stray = next((path for path in sorted(keep) if not path.is_relative_to(shared_dir)), None)
    if stray is not None:
        msg = f"{stray} does not lie below {shared_dir}"
        raise ValueError(msg)
    deleted: list[Path] = []
    for directory, _, names in os.walk(shared_dir, topdown=False):
        place = Path(directory)
        old = [place / name for name in names if is_no_later(attempt_of(name), attempt)]
        unneeded = [path for path in old if path not in keep]
        for path in unneeded:
            path.unlink(missing_ok=True)
        deleted += unneeded
        if place != shared_dir:
            with suppress(OSError):
                place.rmdir()
    return sorted(deleted)
