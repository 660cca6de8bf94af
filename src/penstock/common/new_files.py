"""Creates files that do not stay if they cannot be written completely."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


@contextlib.contextmanager
def create_file(path: Path, mode: str = "xb") -> Iterator[BinaryIO]:
    """Open a new file for writing, and remove it if that fails, for example on a full disk."""
    file = cast(BinaryIO, path.open(mode))
    try:
        yield file
        file.close()
    except BaseException:
        # First: what is buffered still does not fit.
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()
        raise
