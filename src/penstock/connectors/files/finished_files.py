"""Remembers which files were read to their end, compactly enough for every checkpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from penstock.common.config.locations import STORE_SCHEMES, scheme_of
from penstock.connectors.formats.input_file import FileIdentity

_log = logging.getLogger(__name__)

_PATH_BYTES = 12
_CONTENT_BYTES = 4
ENTRY_BYTES = _PATH_BYTES + _CONTENT_BYTES
_ANY_CONTENT = bytes(_CONTENT_BYTES)
"""Of a file in a checkpoint of penstock 0.1.0."""


class _Removed(NamedTuple):
    """A file that is no longer there: the first snapshot without it, and what it was."""

    first: int
    content: bytes
    path: str
    size: int


class FinishedFiles:
    """The files that are not to be read again.

    Of each file that still exists a snapshot holds 16 bytes: a digest of its path, and one of size
    and modification time. A file that was removed is forgotten, in two steps. First it is left out
    of snapshots. Once a checkpoint without it is complete, its name may be used again: before, a
    new file of that name could be lost, because a job that is restored from an older checkpoint
    takes it for the old one. A file that takes the name earlier waits for that checkpoint; the same
    file, if it comes back before a snapshot was taken without it, is remembered again.

    ``snapshots`` is how many snapshots were taken in this attempt.
    """

    def __init__(self, *, checkpointed: bool) -> None:
        self.snapshots = 0
        self._checkpointed = checkpointed
        self._contents: dict[bytes, bytes] = {}
        """By digest of the path: all files."""
        self._present: dict[str, FileIdentity] = {}
        """By path: those that the last listing had, or that were read since."""
        self._removed: dict[bytes, _Removed] = {}
        self._has_unseen = False

    def restore(self, entries: bytes) -> None:
        """Load what a restored snapshot holds."""
        self._has_unseen = True
        for start in range(0, len(entries), ENTRY_BYTES):
            entry = entries[start : start + ENTRY_BYTES]
            self._contents[entry[:_PATH_BYTES]] = entry[_PATH_BYTES:]

    def restore_path(self, path: str) -> None:
        """Load a file that a restored snapshot knows by its path only."""
        self._has_unseen = True
        self._contents[_digest(path)] = _ANY_CONTENT

    def add(self, path: str, identity: FileIdentity) -> None:
        """Add a file that was read to its end."""
        self._contents[_digest(path)] = _content(identity)
        self._present[path] = identity

    def __contains__(self, path: str) -> bool:
        """Whether a file is not to be read, or not yet."""
        if path in self._present:
            return True
        digest = _digest(path)
        return digest in self._contents or digest in self._removed

    def update(self, listed: Mapping[str, FileIdentity], *, forgets: bool) -> bool:
        """Compare with a listing; with ``forgets``, forget the files that it does not have.

        Returns whether it has any of these files.
        """
        changed = [path for path, found in listed.items() if self._has_changed(path, found)]
        if changed:
            _log.warning(
                "File %s%s changed after it was read. Files must be complete when they appear, and "
                "names may be used again only when a checkpoint has completed since the old file "
                "was removed; it is not read again.",
                changed[0],
                f" and {len(changed) - 1} more" if len(changed) > 1 else "",
            )
        missing = [path for path in self._present if path not in listed]
        if forgets:
            # A network file system may leave out a file while others come and go.
            for path in filter(_is_gone, missing):
                self._forget(_digest(path), path, self._present.pop(path).size)
        return any(path in self._present for path in listed)

    def forget_unseen(self) -> None:
        """Forget all restored files that no listing had; only the first call has an effect."""
        if not self._has_unseen:
            return
        self._has_unseen = False
        found = set(map(_digest, self._present))
        for digest in [digest for digest in self._contents if digest not in found]:
            self._forget(digest)

    def positions(self) -> dict[str, int]:
        """Return the files whose paths are known, with the complement of their size as position."""
        sizes = {removed.path: removed.size for removed in self._removed.values() if removed.path}
        sizes |= {path: identity.size for path, identity in self._present.items()}
        return {path: ~size for path, size in sizes.items()}

    def encode(self) -> bytes:
        """Return what the snapshot with the number ``snapshots`` holds, and count it."""
        self.snapshots += 1
        return b"".join(digest + content for digest, content in self._contents.items())

    def complete(self, snapshot: int) -> None:
        """Learn that the checkpoint with this snapshot is complete."""
        for digest in [d for d, removed in self._removed.items() if removed.first <= snapshot]:
            del self._removed[digest]

    def _has_changed(self, path: str, found: FileIdentity) -> bool:
        """Note that a file exists; tell whether it is one of these, and changed."""
        known = self._present.get(path)
        if known is not None and known == found:
            return False
        digest, content = _digest(path), _content(found)
        removed = self._removed.get(digest)
        if removed is not None and removed[:2] == (self.snapshots, content):
            del self._removed[digest]
            self._contents[digest] = content
        before = self._contents.get(digest)
        if before is None:
            return False
        self._present[path] = found
        self._contents[digest] = content
        return before not in (content, _ANY_CONTENT)

    def _forget(self, digest: bytes, path: str = "", size: int = 0) -> None:
        content = self._contents.pop(digest, _ANY_CONTENT)
        if self._checkpointed:
            self._removed[digest] = _Removed(self.snapshots, content, path, size)


def _is_gone(path: str) -> bool:
    if scheme_of(path) in STORE_SCHEMES:
        return True  # the listing of a store has everything
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # it cannot be looked at now
    return False


def _digest(path: str) -> bytes:
    return blake2b(path.encode("utf-8", "surrogateescape"), digest_size=_PATH_BYTES).digest()


def _content(identity: FileIdentity) -> bytes:
    numbers = f"{identity.size} {identity.mtime_ns}".encode()
    return blake2b(numbers, digest_size=_CONTENT_BYTES).digest()
