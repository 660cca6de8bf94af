"""The driver's half of a file sink: from staged files to finished ones."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from penstock.connectors.durable import sync_directory
from penstock.connectors.part_staging import decode_parts
from penstock.connectors.rolling import Piece, RollingPolicy, roll
from penstock.connectors.sink import SinkPublisher
from penstock.errors import LostStagedFileError

__all__ = ["PartFilePublisher", "PartNames"]


@dataclass(frozen=True, slots=True)
class PartNames:
    """Where part files go and what they are called."""

    base_path: Path
    prefix: str
    suffix: str

    def spell(self, bucket: str, writer: str, number: int) -> Path:
        """Name the part with this number of a writer in a bucket."""
        return self.base_path / bucket / f"{self.prefix}-{writer}-{number}{self.suffix}"


class PartFilePublisher(SinkPublisher):
    """Remembers what was published, and makes files of it at the end of the input.

    Until then nothing is visible. A crash during ``finish`` leaves some files visible and the
    others hidden; without checkpoints nothing can tell a new run which.
    """

    def __init__(self, names: PartNames, policy: RollingPolicy, staging: Path) -> None:
        self._names = names
        self._policy = policy
        self._staging = staging
        self._pieces: defaultdict[int, defaultdict[str, list[Piece]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def publish(self, staged: Sequence[bytes]) -> None:
        now = time.monotonic()
        for subtask, entry in enumerate(staged):
            for part in decode_parts(entry):
                piece = Piece(part.path, part.size, now)
                self._pieces[subtask][part.bucket].append(piece)

    def finish(self) -> None:
        self._names.base_path.mkdir(parents=True, exist_ok=True)
        ready: list[tuple[Path, Path]] = []
        for buckets in self._pieces.values():
            writer, number = str(uuid4()), 0
            for bucket, pieces in buckets.items():
                for part in roll(pieces, self._policy):
                    hidden = self._staging / f"part-{len(ready)}"
                    _concatenate(part, hidden)
                    ready.append((hidden, self._names.spell(bucket, writer, number)))
                    number += 1
        # All parts are complete before the first one shows, so an error leaves nothing behind.
        for hidden, final in ready:
            final.parent.mkdir(parents=True, exist_ok=True)
            hidden.rename(final)
        for directory in {final.parent for _, final in ready} | {self._names.base_path}:
            sync_directory(directory)
        shutil.rmtree(self._staging, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._staging.parent.rmdir()  # unless the same sink ends another stream too
        self._pieces.clear()


def _concatenate(part: Sequence[Piece], target: Path) -> None:
    for piece in part:
        path = Path(piece.path)
        size = path.stat().st_size if path.exists() else 0
        if size != piece.size:
            raise LostStagedFileError(piece.path, piece.size, size)
    # The first staged file becomes the part, which is mostly all there is to do.
    Path(part[0].path).rename(target)
    with target.open("ab") as file:
        for piece in part[1:]:
            with Path(piece.path).open("rb") as staged:
                shutil.copyfileobj(staged, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
