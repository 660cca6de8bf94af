"""What can happen to a driver: each fault plays one start of the job, and checks its own claim."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.checkpoint.metadata import CheckpointMetadata, files_of
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.crash_points import CrashPoint
from penstock.recovery.control import Savepoint, Stop
from penstock.savepoint.read import verify_files
from tests.crash.driver import (
    Driver,
    ask,
    completed_checkpoints,
    crash_at,
    has_ended,
    job_dir,
    journal_of,
    started,
)
from tests.crash.pipeline import CRASH_BEHIND, FREEZE_AT, NO_SPACE, Variant

KILLED = -9
HEARTBEATS = {"heartbeat.interval": "60 ms", "heartbeat.timeout": "500 ms"}


class Fault(ABC):
    """One start of the job, and what goes wrong in it."""

    @abstractmethod
    def play(self, variant: Variant) -> Variant:
        """Start the job and let it go wrong; return what to start it with next time.

        Returns when no process of the job runs any more. Raises AssertionError if the job did
        anything else than the fault allows.
        """


@dataclass(frozen=True, slots=True)
class Nothing(Fault):
    """The job runs to its end."""

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            _expect(driver, driver.wait(), {0})
        return variant

    def __str__(self) -> str:
        return "nothing"


@dataclass(frozen=True, slots=True)
class CrashAt(Fault):
    """The driver dies at a crash point, or finishes without reaching it so often."""

    point: CrashPoint
    nth: int = 1

    def play(self, variant: Variant) -> Variant:
        with started(variant, crash_at(self.point, self.nth)) as driver:
            _expect(driver, driver.wait(), {0, KILLED})
        return variant

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}"


@dataclass(frozen=True, slots=True)
class CrashBehind(Fault):
    """The driver dies at a crash point, counted from another one on: in windows between them."""

    first: CrashPoint
    nth: int
    second: CrashPoint
    then: int

    def play(self, variant: Variant) -> Variant:
        where = f"{self.first}:{self.nth} {self.second}:{self.then}"
        with started(variant, {CRASH_BEHIND: where}) as driver:
            _expect(driver, driver.wait(), {0, KILLED})
        return variant

    def __str__(self) -> str:
        return f"{self.second}:{self.then} behind {self.first}:{self.nth}"


@dataclass(frozen=True, slots=True)
class KillLater(Fault):
    """The driver is killed some time after it has begun to write its journal."""

    seconds: float

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            kill_later(driver, variant, self.seconds)
        return variant

    def __str__(self) -> str:
        return f"kill after {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class Rescale(Fault):
    """The driver is killed, and the job goes on with another parallelism or backend."""

    seconds: float
    parallelism: int

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            kill_later(driver, variant, self.seconds)
        return _replace(variant, parallelism=self.parallelism)

    def __str__(self) -> str:
        return f"kill after {self.seconds:.2f} s, then parallelism {self.parallelism}"


@dataclass(frozen=True, slots=True)
class KilledSavepoint(Fault):
    """A savepoint is asked for, and the driver dies before, while or after it is written."""

    seconds: float
    point: CrashPoint | None = None

    def play(self, variant: Variant) -> Variant:
        environment = {} if self.point is None else crash_at(self.point, 1)
        with started(variant, environment) as driver:
            if driver.wait_until(lambda: _is_listening(variant)):
                ask(variant, Savepoint())
                if self.point is None:
                    time.sleep(self.seconds)
                    driver.kill()
            _expect(driver, driver.wait(), {0, KILLED})
        check_savepoints(variant)
        return variant

    def __str__(self) -> str:
        where = f"after {self.seconds:.2f} s" if self.point is None else f"at {self.point}"
        return f"kill a savepoint {where}"


@dataclass(frozen=True, slots=True)
class StopAndRestore(Fault):
    """The job is stopped with a savepoint, and goes on from it, perhaps in another shape."""

    parallelism: int
    backend: str
    drain: bool = False
    claim: bool = False

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            answer = None
            if driver.wait_until(lambda: _is_listening(variant)):
                answer = ask(variant, Stop(self.drain))
            _expect(driver, driver.wait(), {0})
        check_savepoints(variant)
        got = None if answer is None else answer()
        if got is None or not got.ok or got.path is None:
            return variant
        mode = {"execution.state-recovery.claim-mode": "CLAIM" if self.claim else "NO_CLAIM"}
        return _replace(
            variant,
            parallelism=self.parallelism,
            backend=self.backend,
            restore=got.path,
            settings={**variant.settings, **mode},
        )

    def __str__(self) -> str:
        how = "drain" if self.drain else "stop"
        claim = ", claimed" if self.claim else ""
        return f"{how} and restore with {self.backend}, parallelism {self.parallelism}{claim}"


@dataclass(frozen=True, slots=True)
class KilledStop(Fault):
    """The job is to stop with a savepoint, and dies on the way; it goes on, or has stopped.

    The driver dies at the nth passing of a point from the request on.
    """

    point: CrashPoint
    nth: int = 1
    drain: bool = False

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            if not driver.wait_until(lambda: completed_checkpoints(variant) > 0):
                _expect(driver, driver.wait(), {0})
                return variant
            driver.kill()
        # From here on nothing but the stop makes a checkpoint.
        quiet = _replace(variant, interval_ms=None, records=1_000_000)
        attempts = journal_of(variant).attempts_so_far
        where = f"{CrashPoint.COORDINATOR_TRIGGERED}:1 {self.point}:{self.nth}"
        with started(quiet, {CRASH_BEHIND: where}) as driver:
            if driver.wait_until(lambda: journal_of(variant).attempts_so_far > attempts):
                time.sleep(0.1)
                ask(variant, Stop(self.drain))
            _expect(driver, driver.wait(), {0, KILLED})
        check_savepoints(variant)
        ended = journal_of(variant).ended
        if ended is None or ended.savepoint is None:
            return variant
        return _replace(variant, restore=ended.savepoint)

    def __str__(self) -> str:
        return f"kill a {'drain' if self.drain else 'stop'} at {self.point}:{self.nth}"


@dataclass(frozen=True, slots=True)
class Zombie(Fault):
    """The driver freezes, another one takes over, and the first one wakes up again."""

    point: CrashPoint
    nth: int
    thaw_after: float

    def play(self, variant: Variant) -> Variant:
        variant = _replace(variant, settings={**variant.settings, **HEARTBEATS})
        with started(variant, {FREEZE_AT: f"{self.point}:{self.nth}"}) as first:
            if not first.wait_until(lambda: first.is_frozen):
                _expect(first, first.wait(), {0})
                return variant
            time.sleep(0.6)
            attempts = journal_of(variant).attempts_so_far
            with started(variant) as second:
                if second.wait_until(lambda: journal_of(variant).attempts_so_far > attempts):
                    time.sleep(self.thaw_after)
                first.thaw()
                code = first.wait()
                _expect(second, second.wait(), {0})
            # One that froze behind the last word of the journal has nothing left to lose at.
            was_over = self.point is CrashPoint.JOB_FINISHED
            _expect(first, code, {0} if was_over else {1})
            assert was_over or "FencedError" in first.words(), first.words()
        return variant

    def __str__(self) -> str:
        return f"zombie at {self.point}:{self.nth}, thawed after {self.thaw_after:.2f} s"


@dataclass(frozen=True, slots=True)
class DiskFull(Fault):
    """Some calls into the operating system find the disk full; the job fails clearly or not."""

    call: str
    first: int
    last: int

    def play(self, variant: Variant) -> Variant:
        with started(variant, {NO_SPACE: f"{self.call}:{self.first}:{self.last}"}) as driver:
            code = driver.wait()
            _expect(driver, code, {0, 1})
            assert code == 0 or "No space left on device" in driver.words(), driver.words()
        return variant

    def __str__(self) -> str:
        return f"no space in os.{self.call} {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Damage(Fault):
    """A file of the newest checkpoint is damaged: noticed and named, or gone back unharmed."""

    point: CrashPoint
    nth: int
    seed: int

    def play(self, variant: Variant) -> Variant:
        variant = _replace(variant, retained=2)
        with started(variant, crash_at(self.point, self.nth)) as driver:
            _expect(driver, driver.wait(), {0, KILLED})
        state = journal_of(variant)
        if has_ended(variant) or not state.restorable:
            return variant
        newest = state.restorable[-1]
        rng = random.Random(self.seed)
        files = checkpoint_files(variant, newest.path)
        path = rng.choice([files[0], rng.choice(files)])
        good = path.read_bytes()
        _damage(path, rng)
        with started(variant) as driver:
            code = driver.wait()
            _expect(driver, code, {0, 1})
            if code == 1:
                assert "BadCheckpointError" in driver.words(), driver.words()
                assert str(path) in driver.words(), driver.words()
                path.write_bytes(good)
            else:
                assert newest.checkpoint not in state.commits_started, driver.words()
                assert "is damaged" in driver.words(), driver.words()
        return variant

    def __str__(self) -> str:
        return f"damage behind {self.point}:{self.nth}"


def kill_later(driver: Driver, variant: Variant, seconds: float) -> None:
    """Kill a driver some time after it has won the journal."""
    before = len(list(job_dir(variant).journal.glob("*")))
    if driver.wait_until(lambda: len(list(job_dir(variant).journal.glob("*"))) > before):
        time.sleep(seconds)
        driver.kill()
    _expect(driver, driver.wait(), {0, KILLED})


def check_savepoints(variant: Variant) -> None:
    """Every savepoint there is, is complete; every one the journal knows, is there."""
    known = {located(variant, c.path) for c in journal_of(variant).completed if c.savepoint}
    if "CLAIM" in variant.settings.values():
        known.discard(Path(variant.restore or ""))  # it goes with the first checkpoint
    found = set(variant.savepoints.glob("savepoint-*/_metadata"))
    assert known <= {path.parent for path in found}, f"{known} should be in {found}"
    for path in found:
        for operator in _metadata(path).operators:
            verify_files(path.parent, operator.savepoint)


def located(variant: Variant, named: str) -> Path:
    """Where a snapshot lies that the journal names."""
    return job_dir(variant).path / named


def checkpoint_files(variant: Variant, named: str) -> list[Path]:
    """The files of a checkpoint that the journal names, its metadata first."""
    path = located(variant, named)
    metadata = _metadata(path / "_metadata")
    shared = job_dir(variant).shared
    return [path / "_metadata", *(shared / name for name in files_of(metadata))]


def _metadata(path: Path) -> CheckpointMetadata:
    return decode_metadata(path.read_bytes(), str(path))


def _damage(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    match rng.choice(["missing", "truncated", "flipped", "empty"]):
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[: rng.randrange(len(data))])
        case "flipped":
            at = rng.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        case _:
            path.write_bytes(b"")


def _is_listening(variant: Variant) -> bool:
    # Requests that were there before a driver came are answered by saying that the last one died.
    attempts = len(journal_of(variant).attempts)
    return attempts > 0 and completed_checkpoints(variant) > 0


def _expect(driver: Driver, code: int, allowed: Iterable[int]) -> None:
    assert code in allowed, f"exit code {code}, expected {allowed}:\n{driver.words()}"


def _replace(variant: Variant, **changes: object) -> Variant:
    return msgspec.structs.replace(variant, **changes)
