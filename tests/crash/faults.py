"""What can happen to a driver: each fault plays one start of the job, and checks its own claim."""

from __future__ import annotations

import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from penstock.crash_points import CrashPoint
from penstock.recovery.control import Savepoint, Stop
from tests.crash.damage import KINDS, check_savepoints, checkpoint_files, damage, waiting_segments
from tests.crash.driver import (
    Driver,
    completed_checkpoints,
    crash_at,
    has_ended,
    insist,
    job_dir,
    journal_of,
    send,
    started,
)
from tests.crash.job_store import on_disk, server_of
from tests.crash.pipeline import CRASH_BEHIND, EXCHANGE, FREEZE_AT, LOSE, NO_SPACE, Variant

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
            expect(driver, driver.wait(), {0})
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
            expect(driver, driver.wait(), {0, KILLED})
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
            expect(driver, driver.wait(), {0, KILLED})
        return variant

    def __str__(self) -> str:
        return f"{self.second}:{self.then} after {self.first}:{self.nth}"


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
    """The driver is killed, and the job resumes with another parallelism.

    Unless its newest checkpoint holds records that were on their way to as many subtasks as there
    were: then it says so, and names what would help.
    """

    seconds: float
    parallelism: int

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            kill_later(driver, variant, self.seconds)
        other = _replace(variant, parallelism=self.parallelism)
        if not variant.unaligned or has_ended(variant):
            return other
        with started(other) as driver:
            code = driver.wait()
            expect(driver, code, {0, 1})
            if code == 0:
                return other
            assert "RestoreMismatchError" in driver.words(), driver.words()
            assert "take a savepoint" in driver.words(), driver.words()
        return variant

    def __str__(self) -> str:
        return f"kill after {self.seconds:.2f} s, then parallelism {self.parallelism}"


@dataclass(frozen=True, slots=True)
class OtherExchange(Fault):
    """The driver is killed, and records go from stage to stage in the other way from then on."""

    seconds: float

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            kill_later(driver, variant, self.seconds)
        other = "channel" if variant.settings.get(EXCHANGE) == "shuffle" else "shuffle"
        return _replace(variant, settings={**variant.settings, EXCHANGE: other})

    def __str__(self) -> str:
        return f"kill after {self.seconds:.2f} s, then the other exchange"


@dataclass(frozen=True, slots=True)
class KilledSavepoint(Fault):
    """A savepoint is requested, and the driver dies before, while or after it is written."""

    seconds: float
    point: CrashPoint | None = None

    def play(self, variant: Variant) -> Variant:
        environment = {} if self.point is None else crash_at(self.point, 1)
        with started(variant, environment) as driver:
            if driver.wait_until(lambda: is_listening(variant)):
                send(variant, Savepoint())
                if self.point is None:
                    time.sleep(self.seconds)
                    driver.kill()
            expect(driver, driver.wait(), {0, KILLED})
        check_savepoints(variant)
        return _replace(variant, stays=False)

    def __str__(self) -> str:
        where = f"after {self.seconds:.2f} s" if self.point is None else f"at {self.point}"
        return f"kill a savepoint {where}"


@dataclass(frozen=True, slots=True)
class StopAndRestore(Fault):
    """The job is stopped with a savepoint and resumed from it, perhaps in another shape."""

    parallelism: int
    backend: str
    drain: bool = False
    claim: bool = False

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            got = None
            if driver.wait_until(lambda: is_listening(variant)):
                got = insist(driver, variant, Stop(self.drain))
            expect(driver, driver.wait(), {0})
        check_savepoints(variant)
        if got is None or not got.ok or got.path is None:
            return variant
        mode = {"execution.state-recovery.claim-mode": "CLAIM" if self.claim else "NO_CLAIM"}
        return _replace(
            variant,
            parallelism=self.parallelism,
            backend=self.backend,
            restore=got.path,
            stays=False,
            settings={**variant.settings, **mode},
        )

    def __str__(self) -> str:
        how = "drain" if self.drain else "stop"
        claim = ", claimed" if self.claim else ""
        return f"{how} and restore with {self.backend}, parallelism {self.parallelism}{claim}"


@dataclass(frozen=True, slots=True)
class KilledStop(Fault):
    """The job is stopped with a savepoint and killed meanwhile; it resumes, or has stopped.

    The driver dies at the nth passing of a point from the request on.
    """

    point: CrashPoint
    nth: int = 1
    drain: bool = False

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            if not driver.wait_until(lambda: completed_checkpoints(variant) > 0):
                expect(driver, driver.wait(), {0})
                return variant
            driver.kill()
        if has_ended(variant):
            return variant
        # From here on nothing but the stop makes a checkpoint.
        quiet = _replace(variant, interval_ms=None, records=1_000_000)
        attempts = journal_of(variant).attempts_so_far
        where = f"{CrashPoint.COORDINATOR_TRIGGERED}:1 {self.point}:{self.nth}"
        with started(quiet, {CRASH_BEHIND: where}) as driver:
            if driver.wait_until(lambda: journal_of(variant).attempts_so_far > attempts):
                time.sleep(0.1)
                send(variant, Stop(self.drain))
            expect(driver, driver.wait(), {0, KILLED})
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
                expect(first, first.wait(), {0})
                return variant
            time.sleep(0.6)
            attempts = journal_of(variant).attempts_so_far
            with started(variant) as second:
                if second.wait_until(lambda: journal_of(variant).attempts_so_far > attempts):
                    time.sleep(self.thaw_after)
                first.thaw()
                code = first.wait()
                expect(second, second.wait(), {0})
            # One that froze after its last journal entry has nothing left to lose.
            was_over = self.point is CrashPoint.JOB_FINISHED
            expect(first, code, {0} if was_over else {1})
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
    where: str = ""

    def play(self, variant: Variant) -> Variant:
        where = f":{self.where}" if self.where else ""
        script = f"{self.call}:{self.first}:{self.last}{where}"
        with started(variant, {NO_SPACE: script}) as driver:
            code = driver.wait()
            expect(driver, code, {0, 1})
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
            expect(driver, driver.wait(), {0, KILLED})
        state = journal_of(variant)
        if has_ended(variant) or not state.restorable:
            return variant
        newest = state.restorable[-1]
        rng = random.Random(self.seed)
        files = checkpoint_files(variant, newest.path)
        path = rng.choice([files[0], rng.choice(files)])
        good = path.read_bytes()
        damage(path, rng.choice(KINDS), rng)
        with started(variant) as driver:
            code = driver.wait()
            expect(driver, code, {0, 1})
            if code == 1:
                assert "BadCheckpointError" in driver.words(), driver.words()
                assert (path.name if variant.in_store else str(path)) in driver.words(), (
                    driver.words()
                )
                path.write_bytes(good)
            else:
                is_harmless = newest.checkpoint not in state.commits_started
                assert is_harmless or variant.mode == "AT_LEAST_ONCE", driver.words()
                assert "is damaged" in driver.words(), driver.words()
        return variant

    def __str__(self) -> str:
        return f"damage after {self.point}:{self.nth}"


@dataclass(frozen=True, slots=True)
class StoreDown(Fault):
    """The server of the store is killed with -9 while the job runs, and started again."""

    seconds: float
    down: float
    is_killed: bool = False
    """Whether the driver is killed, too, while the server is down."""

    def play(self, variant: Variant) -> Variant:
        server = server_of(variant)
        with started(variant) as driver:
            if driver.wait_until(lambda: completed_checkpoints(variant) > 0):
                time.sleep(self.seconds)
            server.kill()
            if self.is_killed:
                driver.kill()
            time.sleep(self.down)
            server.start()
            expect(driver, driver.wait(), {0, 1, KILLED} if self.is_killed else {0, 1})
        return variant

    def __str__(self) -> str:
        killed = ", and so is the driver" if self.is_killed else ""
        return f"the store is down for {self.down:.2f} s after {self.seconds:.2f} s{killed}"


@dataclass(frozen=True, slots=True)
class DamagedChannel(Fault):
    """A file on its way from stage to stage is damaged: noticed, and made good by a restart."""

    kind: str
    seed: int

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            damage_waiting(driver, variant, self.kind, random.Random(self.seed))
            # Who reads a file that becomes shorter dies of it.
            expect(driver, driver.wait(), {0, -signal.SIGBUS})
        return variant

    def __str__(self) -> str:
        return f"{self.kind} segment"


@dataclass(frozen=True, slots=True)
class LostMicroBatches(Fault):
    """Some micro-batches have done all their work, and are lost: they run again as a whole."""

    numbers: tuple[int, ...]

    def play(self, variant: Variant) -> Variant:
        with started(variant, {LOSE: ",".join(map(str, self.numbers))}) as driver:
            expect(driver, driver.wait(), {0})
        return variant

    def __str__(self) -> str:
        return f"lost micro-batches {', '.join(map(str, self.numbers))}"


@dataclass(frozen=True, slots=True)
class Supervised(Fault):
    """The driver is killed again and again, and each time its supervisor starts another one."""

    seconds: tuple[float, ...]
    """Between the start of each driver's work and its death."""

    def play(self, variant: Variant) -> Variant:
        before = journal_of(variant).attempts_so_far
        with started(variant, supervised=True) as supervisor:
            for number, seconds in enumerate(self.seconds):
                if not supervisor.wait_until(
                    partial(_has_begun_more_than, variant, before + number)
                ):
                    break
                time.sleep(seconds)
                if (driver := supervisor.supervised()) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(driver, signal.SIGKILL)
            expect(supervisor, supervisor.wait(), {0})
        return variant

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:.2f} s" for seconds in self.seconds)
        return f"kills under a supervisor after {times}"


@dataclass(frozen=True, slots=True)
class KilledWorkers(Fault):
    """Python workers of a job on Spark are killed: each costs a try, and no attempt."""

    seconds: tuple[float, ...]
    """Between one and the next."""

    def play(self, variant: Variant) -> Variant:
        before = journal_of(variant).attempts_so_far
        with started(variant) as driver:
            driver.wait_until(partial(_has_begun_more_than, variant, before))
            for seconds in self.seconds:
                time.sleep(seconds)
                for worker in driver.workers()[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
            expect(driver, driver.wait(), {0})
        return variant

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:.2f} s" for seconds in self.seconds)
        return f"workers killed after {times}"


def damage_waiting(driver: Driver, variant: Variant, kind: str, rng: random.Random) -> Path | None:
    """Damage a file that waits after others in a channel of a job that has a checkpoint.

    Returns which one; None if the job came to its end before there was any.
    """
    while driver.wait_until(
        lambda: completed_checkpoints(variant) > 0 and len(waiting_segments(variant)) > 2
    ):
        # Neither one that is read now nor one that is written now.
        for path in waiting_segments(variant)[1:-1][-1:]:
            with suppress(FileNotFoundError):
                damage(path, kind, rng)
                return path
    return None


def kill_later(driver: Driver, variant: Variant, seconds: float) -> None:
    """Kill a driver some time after it has won the journal."""
    before = len(list(on_disk(variant, job_dir(variant).journal).glob("*")))
    if driver.wait_until(
        lambda: len(list(on_disk(variant, job_dir(variant).journal).glob("*"))) > before
    ):
        time.sleep(seconds)
        driver.kill()
    expect(driver, driver.wait(), {0, KILLED})


def _has_begun_more_than(variant: Variant, attempts: int) -> bool:
    return journal_of(variant).attempts_so_far > attempts


def is_listening(variant: Variant) -> bool:
    """Whether a driver answers requests."""
    # Requests that were there before a driver came are answered by saying that the last one died.
    attempts = len(journal_of(variant).attempts)
    return attempts > 0 and completed_checkpoints(variant) > 0


def expect(driver: Driver, code: int, allowed: Iterable[int]) -> None:
    """Assert how a driver ended."""
    assert code in allowed, f"exit code {code}, expected {allowed}:\n{driver.words()}"


def _replace(variant: Variant, **changes: object) -> Variant:
    return msgspec.structs.replace(variant, **changes)
