"""State files and who needs them; the last one who lets go of a file deletes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from penstock.checkpoint.shared_files import SharedFiles

logger = logging.getLogger("penstock.checkpoint")


class FileKeeper:
    """Holders and their files, for all threads of a job attempt."""

    def __init__(self) -> None:
        self._files = SharedFiles()
        self._lock = threading.Lock()

    def hold(self, holder: str, files: Iterable[Path]) -> None:
        """Let a holder need exactly these files from now on."""
        with self._lock:
            freed = self._files.replace(holder, files)
        self._delete(freed)

    def release(self, holder: str) -> None:
        """Let a holder need nothing any more."""
        with self._lock:
            freed = self._files.release(holder)
        self._delete(freed)

    def _delete(self, files: Iterable[Path]) -> None:
        for path in files:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s is not needed any more and cannot be deleted: %s", path, error)
