"""Flips bytes of what a killed job left, one at a time, and restores it.

`python -m tests.crash.fuzz --minutes 10` prints a line for each flip that is neither detected nor
harmless, and fails if there is any. Detected: the job ends with an error of penstock. Harmless: the
job finishes, and its output is exact. Anything else is a defect: a hang, another exception, wrong
output, or a pickle that names something no undamaged run loads.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from penstock import errors
from penstock.recovery.control import Savepoint
from tests.crash.driver import completed_checkpoints, insist, job_dir, started
from tests.crash.pipeline import AUDIT, Variant
from tests.crash.schedules import verdict_of
from tests.local_paths import local

LONGEST_S = 30.0
_ERROR = re.compile(r"^(\w+Error): ", re.MULTILINE)


class Target(StrEnum):
    """What is damaged."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    JOURNAL = "journal"
    HISTORY = "history"
    """Of the job, and what it says of its driver and itself."""


ACCEPTED = dict.fromkeys(Target, ("detected", "harmless")) | {
    # Reading or writing history never affects the job.
    Target.HISTORY: ("harmless",)
}


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one byte."""

    target: Target
    path: Path
    offset: int
    bit: int

    def apply(self) -> None:
        """Damage the file."""
        data = bytearray(self.path.read_bytes())
        data[self.offset] ^= 1 << self.bit
        self.path.write_bytes(data)

    def __str__(self) -> str:
        return f"{self.target}: byte {self.offset}, bit {self.bit} of {self.path}"


class Subject:
    """A job that was killed after checkpoints and a savepoint, restored as often as needed."""

    def __init__(self, directory: Path, backend: str) -> None:
        self.variant = Variant(
            str(directory / "job"), 240, 30, backend=backend, interval_ms=30, retained=2, stays=True
        )
        Path(self.variant.directory).mkdir(parents=True)
        with started(self.variant) as driver:
            driver.wait_until(lambda: completed_checkpoints(self.variant) > 3)
            answer = insist(driver, self.variant, Savepoint())
            assert answer is not None
            assert answer.path is not None, driver.words()
            self._savepoint = answer.path
            driver.kill()
        self._kept = directory / "kept"
        shutil.copytree(self.variant.directory, self._kept, symlinks=True)
        self._loaded: set[str] = set()
        for target in Target:
            # Twice: which pickles are loaded may depend on where the job resumes.
            for _ in range(2):
                outcome, words = self.restore(target, None)
                assert outcome == "harmless", words

    def files(self, target: Target) -> list[Path]:
        """The files of a target, as the killed job left them."""
        job = local(job_dir(self.variant).path)
        match target:
            case Target.CHECKPOINT:
                roots = [p for p in job.iterdir() if p.name.startswith(("chk-", "shared"))]
            case Target.SAVEPOINT:
                roots = [Path(self._savepoint)]
            case Target.JOURNAL:
                roots = [job / "journal"]
            case Target.HISTORY:
                roots = [job / "history", job / "job.json", job / "driver.json"]
        found = [p for root in roots for p in (root, *root.rglob("*")) if p.is_file()]
        return sorted(p for p in found if p.stat().st_size)

    def reset(self) -> None:
        """Put everything back."""
        shutil.rmtree(self.variant.directory)
        shutil.copytree(self._kept, self.variant.directory, symlinks=True)

    def restore(self, target: Target, flip: Flip | None) -> tuple[str, str]:
        """Damage a file, start the job, and say how that went, with the driver's last words."""
        self.reset()
        if flip is not None:
            flip.apply()
        restore = self._savepoint if target is Target.SAVEPOINT else None
        variant = msgspec.structs.replace(self.variant, stays=False, restore=restore)
        audit = Path(variant.directory) / "audit"
        with started(variant, {AUDIT: str(audit)}) as driver:
            try:
                code = driver.wait(LONGEST_S)
            except AssertionError:
                return "hangs", driver.words()
            words = driver.words()
        loaded = set(json.loads(audit.read_text())) if audit.exists() else set()
        if flip is None:
            self._loaded |= loaded
        elif loaded - self._loaded:
            return f"loads pickles of {sorted(loaded - self._loaded)}", words
        if code == 0:
            verdict = verdict_of(variant)
            return ("harmless" if verdict.is_exactly_once else f"gives {verdict}"), words
        named = _ERROR.findall(words)
        if code == 1 and any(hasattr(errors, name) for name in named):
            return "detected", words
        return f"ends with exit code {code}", words


def flips(subject: Subject, rng: random.Random) -> Iterator[Flip]:
    """Draw flips for ever: targets in turn, files equally often, any byte of a file."""
    while True:
        for target in Target:
            subject.reset()
            path = rng.choice(subject.files(target))
            yield Flip(target, path, rng.randrange(path.stat().st_size), rng.randrange(8))


def fuzz(directory: Path, seed: int, seconds: float, most: int | None, backend: str) -> int:
    """Flip and restore until the time is over; return how many flips were defects."""
    rng, subject = random.Random(seed), Subject(directory, backend)
    outcomes: Counter[str] = Counter()
    defects, end = 0, time.monotonic() + seconds
    for number, flip in enumerate(flips(subject, rng)):
        if time.monotonic() > end or number == most:
            break
        outcome, words = subject.restore(flip.target, flip)
        if outcome not in ACCEPTED[flip.target]:
            defects += 1
            print(f"{flip} => {outcome}\n{words}", flush=True)
            outcome = "defect"
        outcomes[f"{flip.target} {outcome}"] += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(outcomes.items())))
    print(f"{outcomes.total()} flips, {defects} defects, seed {seed}, backend {backend}")
    return defects


def main(arguments: list[str]) -> int:
    """Fuzz for some minutes; the exit code is 1 if there was a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, help="stop after this many")
    parser.add_argument("--backend", default="hashmap")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as directory:
        seconds = given.minutes * 60
        defects = fuzz(Path(directory), given.seed, seconds, given.flips, given.backend)
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
