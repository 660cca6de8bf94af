"""What a job's surroundings can do to it: other jobs, operators, consumers, clocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.crash_points import CrashPoint
from penstock.recovery.control import Cancel, Stop
from penstock.testing.verification import finished_files
from tests.crash.damage import check_savepoints, located
from tests.crash.driver import (
    completed_checkpoints,
    has_ended,
    insist,
    job_dir,
    journal_of,
    started,
)
from tests.crash.faults import HEARTBEATS, Fault, KillLater, expect, is_listening, kill_later
from tests.crash.pipeline import CLOCK, FREEZE_AT, Variant

RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
CLAIM_MODE = "execution.state-recovery.claim-mode"


@dataclass(frozen=True, slots=True)
class TakenOver(Fault):
    """A driver freezes, a second one takes over, the first wakes up, then the second is killed.

    Whatever the first one still did, a third one resumes from what the second one left.
    """

    point: CrashPoint
    nth: int
    thaw_after: float
    kill_after: float

    def play(self, variant: Variant) -> Variant:
        variant = msgspec.structs.replace(variant, settings={**variant.settings, **HEARTBEATS})
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
                expect(first, first.wait(), {0, 1})
                time.sleep(self.kill_after)
                second.kill()
        return variant

    def __str__(self) -> str:
        return (
            f"taken over at {self.point}:{self.nth}, thawed after {self.thaw_after:.2f} s, "
            f"killed {self.kill_after:.2f} s later"
        )


@dataclass(frozen=True, slots=True)
class OtherConfiguration(Fault):
    """The driver is killed, and the job resumes with other settings."""

    seconds: float
    changes: tuple[tuple[str, object], ...]
    """Fields of the variant, by name."""
    settings: tuple[tuple[str, str], ...] = ()

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            kill_later(driver, variant, self.seconds)
        settings = {**variant.settings, **dict(self.settings)}
        return msgspec.structs.replace(variant, **dict(self.changes), settings=settings)

    def __str__(self) -> str:
        changed = ", ".join(f"{name} {value}" for name, value in (*self.changes, *self.settings))
        return f"kill after {self.seconds:.2f} s, then {changed}"


@dataclass(frozen=True, slots=True)
class SameName(Fault):
    """Another job of the same id writes into the same output path meanwhile; one is killed.

    The two have their own checkpoint directories. Each has to end with its own rows.
    """

    seconds: float
    kills_rival: bool

    def play(self, variant: Variant) -> Variant:
        if variant.has_rival:
            # It has ended: started again, it would rightly run again, and emit everything again.
            return KillLater(self.seconds).play(variant)
        rival = variant.rival()
        Path(rival.directory).mkdir(exist_ok=True)
        with started(variant) as driver, started(rival) as other:
            if self.kills_rival:
                kill_later(other, rival, self.seconds)
                expect(driver, driver.wait(), {0})
            else:
                kill_later(driver, variant, self.seconds)
                expect(other, other.wait(), {0})
        if not has_ended(rival):
            with started(rival) as other:
                expect(other, other.wait(), {0})
        return msgspec.structs.replace(variant, has_rival=True)

    def __str__(self) -> str:
        which = "the other" if self.kills_rival else "it"
        return f"two jobs of one name, {which} killed after {self.seconds:.2f} s"


@dataclass(frozen=True, slots=True)
class ConsumedStop(Fault):
    """The job is stopped with a savepoint, its output is moved away, and it is restored."""

    drain: bool = False
    claim: bool = False

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            got = None
            if driver.wait_until(lambda: is_listening(variant)):
                got = insist(driver, variant, Stop(self.drain))
            expect(driver, driver.wait(), {0})
        if got is None or not got.ok or got.path is None:
            return variant
        check_savepoints(variant)
        consume(variant)
        mode = {CLAIM_MODE: "CLAIM" if self.claim else "NO_CLAIM"}
        return msgspec.structs.replace(
            variant, restore=got.path, stays=False, settings={**variant.settings, **mode}
        )

    def __str__(self) -> str:
        return f"{'drained' if self.drain else 'stopped'}, its output consumed, restored"


@dataclass(frozen=True, slots=True)
class RetainedCheckpoint(Fault):
    """The job is cancelled and keeps its checkpoint; it is restored without that setting."""

    def play(self, variant: Variant) -> Variant:
        retains = {**variant.settings, RETENTION: "RETAIN_ON_CANCELLATION"}
        with started(msgspec.structs.replace(variant, settings=retains)) as driver:
            if driver.wait_until(lambda: completed_checkpoints(variant) > 0):
                insist(driver, variant, Cancel())
            expect(driver, driver.wait(), {0, 1})
        journal = journal_of(variant)
        newest = journal.restorable[-1] if journal.restorable else None
        # A savepoint is its owner's in any case.
        if has_ended(variant) or newest is None or newest.savepoint:
            return variant
        path = located(variant, newest.path)
        assert path.is_dir(), f"the retained checkpoint {path} is not there"
        place = job_dir(variant).from_journal_path(newest.path)
        # Not claimed, as an earlier fault may have set: then the job would rightly delete it.
        unclaimed = {**variant.settings, CLAIM_MODE: "NO_CLAIM"}
        restored = msgspec.structs.replace(variant, restore=str(place), settings=unclaimed)
        with started(restored) as driver:
            expect(driver, driver.wait(), {0})
        assert (path / "_metadata").is_file(), f"{path} was deleted by the job that restored it"
        return restored

    def __str__(self) -> str:
        return "cancelled, and restored from its retained checkpoint"


@dataclass(frozen=True, slots=True)
class ClockJump(Fault):
    """The wall clock of the driver jumps."""

    after: float
    by: float

    def play(self, variant: Variant) -> Variant:
        with started(variant, {CLOCK: f"{self.after}:{self.by}"}) as driver:
            expect(driver, driver.wait(), {0})
        return variant

    def __str__(self) -> str:
        return f"the clock jumps by {self.by:g} s after {self.after:.2f} s"


def consume(variant: Variant) -> None:
    """Move the finished files of a job away, as the consumer of its output does."""
    variant.consumed.mkdir(exist_ok=True)
    for file in finished_files(variant.output):
        target = variant.consumed / file.name
        assert not target.exists(), f"{file} has the name of a file that was consumed"
        file.replace(target)
