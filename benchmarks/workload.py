"""Seeded text files of one key per line, the same for every engine.

Keys are drawn uniformly. A micro-batch is `files_per_batch` files, so that every engine can read it
on all cores. The files are written once and kept.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FIRST_MODIFIED = 1_700_000_000


def default_cache() -> Path:
    return Path(tempfile.gettempdir()) / "penstock-bench"


@dataclass(frozen=True)
class Workload:
    """Rows of one word each, cut into files that make up micro-batches."""

    keys: int
    rows_per_batch: int
    batches: int
    files_per_batch: int
    cache: str
    seed: int = 7

    @property
    def rows(self) -> int:
        return self.rows_per_file * self.files

    @property
    def files(self) -> int:
        return self.batches * self.files_per_batch

    @property
    def rows_per_file(self) -> int:
        return max(1, self.rows_per_batch // self.files_per_batch)

    @property
    def directory(self) -> Path:
        name = f"words-k{self.keys}-f{self.files}x{self.rows_per_file}-s{self.seed}"
        return Path(self.cache) / name

    def paths(self) -> list[Path]:
        return [self.directory / f"part-{index:05d}.txt" for index in range(self.files)]

    def generate(self) -> None:
        """Write the files that are not there yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for index, path in enumerate(self.paths()):
            if not path.exists():
                self._write(index, path)

    def count(self) -> dict[str, int]:
        """Count the words without any engine."""
        counts: Counter[str] = Counter()
        for path in self.paths():
            counts.update(path.read_text().split())
        return dict(counts)

    def _write(self, index: int, path: Path) -> None:
        numbers = np.random.default_rng([self.seed, self.keys, index])
        drawn = numbers.integers(0, self.keys, self.rows_per_file).tolist()
        # Hidden from the engines' listings until it is whole, should another run be reading.
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text("".join(f"k{number:07d}\n" for number in drawn))
        # Spark's file source takes files by age: let that be the order of their names.
        os.utime(draft, (FIRST_MODIFIED + index, FIRST_MODIFIED + index))
        draft.rename(path)
