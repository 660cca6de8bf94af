"""What can happen to a job's files: its input changes, or a file system of its own is full."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.crash.damage import located, metadata_in
from tests.crash.driver import Driver, has_ended, job_dir, journal_of, started
from tests.crash.faults import KILLED, Fault, expect
from tests.crash.file_input import input_paths, lines_of
from tests.crash.job_store import on_disk
from tests.crash.pipeline import Variant
from tests.servers.small_disk import SmallDisk

CHANGES = ("truncated", "extended", "rewritten", "replaced", "removed")
_OTHERS = 500_000
"""Events from here on are in no input: a line of a changed file that counts is found by it."""


@dataclass(frozen=True, slots=True)
class ChangedInput(Fault):
    """A file changes that a completed checkpoint holds as begun, or as read to its end.

    In the first case the job fails with its name, or had read it to its end before the change. In
    the second one nothing happens. Then the file is put back as a user does it: with its old
    modification time.
    """

    kind: str
    seconds: float
    is_read: bool = False
    """Whether the file is one that was read to its end."""
    kill_after: float | None = None
    """After how many seconds the driver is killed, so that the next one finds the change."""

    def play(self, variant: Variant) -> Variant:
        with started(variant) as driver:
            if not driver.wait_until(lambda: self._target(variant) is not None):
                expect(driver, driver.wait(), {0})
                return variant
            path = self._target(variant)
            assert path is not None
            time.sleep(self.seconds)
            good, times = path.read_bytes(), path.stat()
            change(path, self.kind)
            if self.kill_after is not None:
                time.sleep(self.kill_after)
                driver.kill()
            code = self._check(driver, path)
        if code == KILLED and not has_ended(variant):
            with started(variant) as driver:
                self._check(driver, path)
        put_back(path, good, times)
        return variant

    def _target(self, variant: Variant) -> Path | None:
        """The file to change, once a checkpoint has it: a restart cannot begin it anew."""
        begun = begun_file(variant)
        if begun is None or not self.is_read:
            return begun
        paths = input_paths(variant.input)
        number = paths.index(begun)
        return paths[number - 1] if number else None

    def _check(self, driver: Driver, path: Path) -> int:
        code, words = driver.wait(), driver.words()
        allowed = {0} if self.is_read else {0, 1}
        expect(driver, code, allowed | ({KILLED} if self.kill_after is not None else set()))
        name = "MissingPathError" if self.kind == "removed" else "ChangedFileError"
        assert code != 1 or (name in words and str(path) in words), words
        return code

    def __str__(self) -> str:
        which = "a file that was read" if self.is_read else "a file that is read"
        killed = "" if self.kill_after is None else f", killed {self.kill_after:.2f} s later"
        return f"{which} is {self.kind} after {self.seconds:.2f} s{killed}"


def begun_file(variant: Variant) -> Path | None:
    """The file of which the newest checkpoint holds the beginning."""
    restorable = journal_of(variant).restorable
    if not restorable:
        return None
    try:
        metadata = metadata_in(located(variant, restorable[-1].path))
    except FileNotFoundError:  # a newer one has completed meanwhile
        return None
    sources = [o.source for o in metadata.operators if o.uid == "fast"]
    positions = {} if not sources or sources[0] is None else sources[0].positions
    return next((Path(path) for path, position in positions.items() if position > 0), None)


def change(path: Path, kind: str) -> None:
    """Change an input file while a job reads it."""
    size = path.stat().st_size
    lines = len(path.read_bytes().splitlines())
    match kind:
        case "truncated":
            os.truncate(path, size // 3)
        case "extended":
            with path.open("ab") as file:
                file.write(lines_of(range(_OTHERS, _OTHERS + 20)))
        case "rewritten":
            with path.open("r+b") as file:
                file.write(lines_of(range(_OTHERS, _OTHERS + lines)))
        case "replaced":
            hidden = path.with_name(f".{path.name}-new")
            hidden.write_bytes(lines_of(range(_OTHERS, _OTHERS + lines)))
            hidden.replace(path)
        case _:
            path.unlink()


def put_back(path: Path, content: bytes, times: os.stat_result) -> None:
    """Restore a file from a copy that keeps modification times."""
    hidden = path.with_name(f".{path.name}-old")
    hidden.write_bytes(content)
    os.utime(hidden, ns=(times.st_atime_ns, times.st_mtime_ns))
    hidden.replace(path)


@dataclass(frozen=True, slots=True)
class FullFileSystem(Fault):
    """The small file system of the job is full: it fails clearly, or survives until space is free.

    It is mounted for the schedule, and other processes use up its space.
    """

    seconds: float
    hold: float | None = None
    """How long it is full while the job runs; None: until the job has failed or finished."""
    is_killed: bool = False
    """Whether the driver is killed when it is full, so that the next one starts there."""

    def play(self, variant: Variant) -> Variant:
        disk = SmallDisk(Path(variant.disk))
        before = _journal_entries(variant)
        try:
            with started(variant) as driver:
                if driver.wait_until(lambda: _journal_entries(variant) > before):
                    time.sleep(self.seconds)
                disk.fill()
                if self.is_killed:
                    driver.kill()
                code = self._hold(driver, variant, disk)
            if code == KILLED and not has_ended(variant):
                disk.fill()
                with started(variant) as driver:
                    self._hold(driver, variant, disk)
        finally:
            disk.free()
        return variant

    def _hold(self, driver: Driver, variant: Variant, disk: SmallDisk) -> int:
        """Keep it full, whatever the job removes, for some time."""
        began = time.monotonic()
        while driver.is_running and (self.hold is None or time.monotonic() < began + self.hold):
            assert time.monotonic() < began + 60, f"it neither fails nor ends:\n{driver.words()}"
            disk.fill()
            time.sleep(0.01)
        disk.free()
        code, words = driver.wait(), driver.words()
        expect(driver, code, {0, 1, KILLED} if self.is_killed else {0, 1})
        is_clear = "No space left on device" in words and variant.disk in words
        assert code != 1 or is_clear, words
        return code

    def __str__(self) -> str:
        hold = "" if self.hold is None else f" for {self.hold:.2f} s"
        killed = ", and it is killed" if self.is_killed else ""
        return f"a full file system after {self.seconds:.2f} s{hold}{killed}"


def _journal_entries(variant: Variant) -> int:
    return len(list(on_disk(variant, job_dir(variant).journal).glob("*")))
