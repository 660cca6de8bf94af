"""Creates files that do not stay if they cannot be written completely."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def name_path(error: OSError, path: Path | str) -> None:
    """Add the path to the error of a full disk: a failed write does not know its file."""
    if error.filename is None and error.errno in _NO_SPACE:
        error.filename = str(path)


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Let the error of a full disk name the file that is written."""
    try:
        yield
    except OSError as error:
        name_path(error, path)
        raise


@contextlib.contextmanager
def create_file(path: Path, mode: str = "xb") -> Iterator[BinaryIO]:
    """Open a new file for writing, and remove it if that fails, for example on a full disk."""
    file = cast(BinaryIO, path.open(mode))
    try:
        yield file
        file.close()
    except BaseException as error:
        if isinstance(error, OSError):
            name_path(error, path)
        # First: what is buffered still does not fit.
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()
        raise
