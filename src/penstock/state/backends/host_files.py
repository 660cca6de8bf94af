"""State files on the host of a reader that is not part of the job: linked or copied once."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from penstock.common.storage_url import StorageUrl
from penstock.state.backends.refs import FileRef, StateLocation
from penstock.state.files import open_file, place_of, verify_file

_FILES = "files"


class HostFiles:
    """Files of one subtask's state in a directory of the reader, verified when they get there.

    They stay readable when the job deletes its own. Used by one thread at a time.
    """

    def __init__(self, directory: Path) -> None:
        """Use a directory that no one else uses; it is created."""
        self.directory = directory
        self._files = directory / _FILES
        self._files.mkdir(parents=True, exist_ok=True)
        self._names: set[str] = set()
        self.opened: dict[str, Any] = {}
        """What a backend has made of files, by their names; it is closed with them."""

    def get(self, location: StateLocation, ref: FileRef) -> Path:
        """Return where a file is on this host.

        Raises:
            CorruptStateError: it is missing, damaged or another one.
            StateElsewhereError: it is on another host.
        """
        path = self._files / ref.name
        if ref.name not in self._names:
            path.unlink(missing_ok=True)
            self._fetch(location, ref, path)
            self._names.add(ref.name)
        return path

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other files."""
        for name in self._names.difference(names):
            self._forget(name)

    def close(self) -> None:
        """Remove everything."""
        self.keep_only(())
        shutil.rmtree(self.directory, ignore_errors=True)

    def _fetch(self, location: StateLocation, ref: FileRef, path: Path) -> None:
        source = place_of(location, ref)
        if not isinstance(source, StorageUrl):
            # Not possible on another file system, or if the system forbids it for files of others.
            with contextlib.suppress(OSError):
                os.link(source, path)
                verify_file(path, ref.size, ref.crc)
                return
        with open_file(location, ref) as stored, path.open("xb") as copy:
            shutil.copyfileobj(stored, copy, 1 << 20)
        verify_file(path, ref.size, ref.crc)

    def _forget(self, name: str) -> None:
        self._names.discard(name)
        opened = self.opened.pop(name, None)
        if opened is not None:
            opened.close()
        (self._files / name).unlink(missing_ok=True)
