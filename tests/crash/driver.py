"""Starts the job in a separate process, kills it, sends it requests, and reads its journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec

from penstock.checkpoint.history import CheckpointStats, History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.common.job_status import JobStatus
from penstock.crash_points import CRASH_AT, CRASH_LOG
from penstock.ids import JobKey
from penstock.recovery.control import Answer, Control, Request
from tests.crash.fork_server import Forked
from tests.crash.pipeline import JOB, Variant

ROOT = Path(__file__).parents[2]
LONGEST_RUN_S = 60.0
LONGEST_RUN_ON_SPARK_S = 240.0
LONGEST_WAIT_S = 60.0
LONGEST_WAIT_ON_SPARK_S = 150.0

QUICK_JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For JVMs that live shortly: half the time to start."""

SUPERVISE = [
    *["-m", "penstock.cli.main", "run", "--supervise"],
    *["-D", "restart-strategy.type=fixed-delay"],
    *["-D", "restart-strategy.fixed-delay.attempts=20"],
    *["-D", "restart-strategy.fixed-delay.delay=10 ms"],
    "--",
]


class Shape(Protocol):
    """What a driver has to know of a variant of a job."""

    @property
    def directory(self) -> str:
        """Where everything of it is."""

    @property
    def spark(self) -> bool:
        """Whether it runs on Spark."""


class Driver:
    """One process that runs a variant of the job; its words go into a file of their own.

    With `supervised` the process starts the driver, and starts it again whenever it dies.
    """

    program: ClassVar[str] = "tests.crash.pipeline"
    """The module that runs the job."""
    forks: ClassVar[bool] = True
    """Whether its `main` may be called in a process that was forked, where Spark is not used."""

    def __init__(
        self,
        variant: Shape,
        environment: Mapping[str, str] | None = None,
        *,
        supervised: bool = False,
    ) -> None:
        directory = Path(variant.directory)
        self._longest = LONGEST_RUN_ON_SPARK_S if variant.spark else LONGEST_RUN_S
        self._patience = LONGEST_WAIT_ON_SPARK_S if variant.spark else LONGEST_WAIT_S
        number = len(list(directory.glob("start-*.log"))) + 1
        self.log = directory / f"start-{number}.log"
        spelled = directory / f"start-{number}.json"
        spelled.write_bytes(msgspec.json.encode(variant))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        clean |= QUICK_JVM if variant.spark else {}
        clean |= {CRASH_LOG: str(directory / "crashes"), **(environment or {})}
        self._process: Forked | subprocess.Popen[bytes]
        if self.forks and not (variant.spark or supervised):
            self._process = Forked(self.program, spelled, ROOT, clean, self.log)
            return
        file = str(ROOT.joinpath(*self.program.split(".")).with_suffix(".py"))
        program = [*SUPERVISE, file] if supervised else ["-m", self.program]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *program, str(spelled)],
                cwd=ROOT,
                env=clean,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end, and return how it ended; one that takes too long is an error."""
        seconds = seconds or self._longest
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            message = f"it did not end within {seconds:g} s:\n{self.words()}"
            raise AssertionError(message) from None

    def wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something is true; false if the process has ended before."""
        seconds = seconds or self._patience
        end = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None:
                return False
            if time.monotonic() > end:
                self.kill()
                message = f"it did not come true within {seconds:g} s:\n{self.words()}"
                raise AssertionError(message)
            time.sleep(0.003)
        return True

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process, which leads a group and a session of its own."""
        return self._process.pid

    def kill(self) -> int:
        """Kill it with -9, with whatever it started."""
        self._signal(signal.SIGKILL)
        for pid, _ in self._session():
            # A supervised driver leads a group of its own.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self._process.wait()

    def workers(self) -> list[int]:
        """Return the Python workers of a driver on Spark: forked off a daemon of the same name."""
        session = self._session()
        daemons = {pid for pid, _ in session if b"daemon" in _command(pid)}
        return [pid for pid, parent in session if pid in daemons and parent in daemons]

    def supervised(self) -> int | None:
        """Return the driver that a supervisor has started, None while there is none."""
        return next((pid for pid, parent in self._session() if parent == self.pid), None)

    def _session(self) -> list[tuple[int, int]]:
        """All processes that it and its children have started, each with its parent."""
        return [
            (int(stat.split()[0]), int(stat.rpartition(")")[2].split()[1]))
            for stat in _stats()
            if int(stat.rpartition(")")[2].split()[3]) == self.pid
        ]

    def freeze(self) -> None:
        """Stop it where it stands."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        self._signal(signal.SIGCONT)

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # Gone before the file was opened, or between opening and reading it.
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def words(self) -> str:
        """Return the end of what it said."""
        return self.log.read_text(errors="replace")[-3000:]

    def _signal(self, number: signal.Signals) -> None:
        # Also when the driver itself is gone: what it started may outlive it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _stats() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield path.read_text(errors="replace")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def started(
    variant: Variant, environment: Mapping[str, str] | None = None, *, supervised: bool = False
) -> Iterator[Driver]:
    """Start the job; whatever happens, no process is left."""
    driver = Driver(variant, environment, supervised=supervised)
    try:
        yield driver
    finally:
        driver.kill()


def crash_at(point: str, nth: int) -> dict[str, str]:
    """The environment that kills a driver at a point."""
    return {CRASH_AT: f"{point}:{nth}"}


def crashes(variant: Variant) -> list[str]:
    """The points at which drivers of this job have died so far."""
    log = Path(variant.directory) / "crashes"
    return log.read_text().splitlines() if log.exists() else []


def job_dir(variant: Variant) -> JobDir:
    """The job's directory."""
    return JobDir(variant.checkpoints, JobKey(JOB))


def journal_of(variant: Variant) -> JournalState:
    """What the job's journal says."""
    return Journal(job_dir(variant).storage, JOB).state()


def history_of(variant: Variant) -> list[CheckpointStats]:
    """The recorded checkpoints of the job, oldest first."""
    return History(job_dir(variant).storage).checkpoints()


def has_ended(variant: Variant) -> bool:
    """Whether the journal says that the job has ended: then it must not be started again."""
    ended = journal_of(variant).ended
    return ended is not None and ended.status is JobStatus.FINISHED


def completed_checkpoints(variant: Variant) -> int:
    """The highest id of a checkpoint that counts."""
    return max((c.checkpoint for c in journal_of(variant).completed), default=0)


def send(variant: Variant, request: Request) -> Callable[[], Answer | None]:
    """Send a request to the driver; the result returns the answer, if there is one."""
    control = Control(job_dir(variant))
    id_ = control.submit(request)
    return lambda: control.answer(id_)


def insist(driver: Driver, variant: Variant, request: Request) -> Answer | None:
    """Repeat a request until it succeeds or the driver has ended; return the last answer.

    A new driver rejects earlier requests, and an attempt that fails takes its
    savepoint with it.
    """
    answer: Answer | None = None
    while driver.is_running and (answer is None or not answer.ok):
        answer_of = send(variant, request)

        def is_answered(answer_of: Callable[[], Answer | None] = answer_of) -> bool:
            return answer_of() is not None

        driver.wait_until(is_answered)
        answer = answer_of()
    return answer
