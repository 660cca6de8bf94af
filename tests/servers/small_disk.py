"""A small file system that tests can fill up."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import MissingServerError

_BLOCK = bytes(65536)


class SmallDisk:
    """A directory on its own file system, which can be filled up and freed again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Use all remaining space; may be repeated."""
        with self._ballast.open("ab", buffering=0) as file:
            block = _BLOCK
            while block:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def free(self) -> None:
        """Free the space again; may be repeated."""
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """Mount a file system of this size until the end of the block.

    It is a tmpfs, so the process needs the right to mount. Servers that use it must have ended when
    the block ends.
    """
    place = Path(tempfile.mkdtemp(prefix="penstock-small-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        done = subprocess.CompletedProcess(command, 1, "", str(error))
    if done.returncode != 0:
        place.rmdir()
        disk, why = "a small disk", done.stderr.strip()
        raise MissingServerError(disk, f"right to mount a tmpfs ({why})", "run as root")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
        with contextlib.suppress(OSError):
            place.rmdir()
