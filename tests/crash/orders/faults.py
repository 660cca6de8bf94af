"""What can happen to the parts of the orders pipeline: each fault strikes a job that runs."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass

from penstock.crash_points import CrashPoint
from tests.crash.driver import crash_at
from tests.crash.orders.program import FREEZE_AT
from tests.crash.orders.run import Run
from tests.crash.orders.world import Part
from tests.servers.cutting_proxy import Loss

HEARTBEAT_TIMEOUT_S = 3.0
LONGEST_AGONY_S = 12.0


class Fault(ABC):
    """Something that goes wrong while the job runs."""

    @abstractmethod
    def strike(self, run: Run) -> None:
        """Let it go wrong; return when everything that was broken is mended, but for the job."""


@dataclass(frozen=True, slots=True)
class KillDriver(Fault):
    """The driver dies; on Spark its JVM may live on for a moment."""

    alone: bool = False

    def strike(self, run: Run) -> None:
        kill_driver(run, alone=self.alone)

    def __str__(self) -> str:
        return "kill driver" + (" alone" if self.alone else "")


@dataclass(frozen=True, slots=True)
class KillWorkers(Fault):
    """Python workers die, one after the other; only Spark has any."""

    seconds: tuple[float, ...]
    """Before each."""

    def strike(self, run: Run) -> None:
        for seconds in self.seconds:
            run.wait(seconds)
            run.wait_until(lambda: bool(run.driver.workers()), "a worker")
            for worker in run.driver.workers()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    def __str__(self) -> str:
        return f"kill {len(self.seconds)} workers"


@dataclass(frozen=True, slots=True)
class KillServer(Fault):
    """A server dies, and comes back after a while; perhaps the driver dies in the same moment."""

    part: Part
    seconds: float
    and_driver: bool = False

    def strike(self, run: Run) -> None:
        run.world.server(self.part).kill()
        if self.and_driver:
            kill_driver(run)
        run.wait(self.seconds)
        run.world.server(self.part).start()

    def __str__(self) -> str:
        driver = " and driver" if self.and_driver else ""
        return f"kill {self.part}{driver} for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class StopServer(Fault):
    """A server is paused for longer than its clients wait, and then resumed."""

    part: Part
    seconds: float

    def strike(self, run: Run) -> None:
        run.world.server(self.part).pause()
        try:
            run.wait(self.seconds)
        finally:
            run.world.server(self.part).resume()

    def __str__(self) -> str:
        return f"stop {self.part} for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class GoneAtCommit(Fault):
    """A server dies when a checkpoint counts and its sinks are about to commit."""

    part: Part
    seconds: float

    def strike(self, run: Run) -> None:
        driver = run.restart({FREEZE_AT: f"{CrashPoint.SINK_COMMITS_STARTED}:2"})
        run.wait_until(lambda: driver.is_frozen or not driver.is_running, "commits to begin")
        run.world.server(self.part).kill()
        driver.thaw()
        run.wait(self.seconds)
        run.world.server(self.part).start()

    def __str__(self) -> str:
        return f"kill {self.part} at commits for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Zombie(Fault):
    """The driver stands still, another one takes over, and the first one wakes up again."""

    seconds: float
    """From the takeover to the awakening."""
    point: CrashPoint | None = None
    """Where it stands still; anywhere if None."""
    nth: int = 1

    def strike(self, run: Run) -> None:
        if self.point is None:
            zombie = run.driver
            zombie.freeze()
        else:
            zombie = run.restart({FREEZE_AT: f"{self.point}:{self.nth}"})
            run.wait_until(lambda: zombie.is_frozen or not zombie.is_running, str(self.point))
        if not zombie.is_running:
            return
        time.sleep(HEARTBEAT_TIMEOUT_S + 0.5)
        attempts = run.journal.attempts_so_far
        run.start()
        run.wait_until(
            lambda: run.has_finished or run.journal.attempts_so_far > attempts, "the takeover"
        )
        run.wait(self.seconds)
        zombie.thaw()
        code = zombie.wait()
        assert code != 0, f"a zombie believes that it has finished the job:\n{zombie.words()}"
        assert "Fenced" in zombie.words(), f"it ended otherwise:\n{zombie.words()}"

    def __str__(self) -> str:
        where = "" if self.point is None else f" at {self.point}:{self.nth}"
        return f"stop driver{where}, another one works for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class LostCommit(Fault):
    """A connection breaks at a commit: before the server hears of it, or before it can answer."""

    part: Part
    loss: Loss = Loss.ANSWER
    and_driver: bool = False
    """Whether the driver dies too, and so never learns the result."""

    def strike(self, run: Run) -> None:
        proxy = run.world.proxy(self.part)
        proxy.cut_at(1, loss=self.loss)
        run.wait_until(lambda: run.has_finished or proxy.await_cut(0), "a commit to be cut")
        if self.and_driver:
            kill_driver(run)

    def __str__(self) -> str:
        what = "answer to a commit" if self.loss is Loss.ANSWER else "commit"
        driver = ", kill driver" if self.and_driver else ""
        return f"lose the {self.part}'s {what}{driver}"


@dataclass(frozen=True, slots=True)
class DiskFull(Fault):
    """The disk of the broker is full, until space is freed and the broker is started."""

    seconds: float
    """After the death of the broker, or after the time in which it should have died."""

    def strike(self, run: Run) -> None:
        disk, broker = run.world.disk, run.world.broker
        if disk is None:
            run.unplayed.append(f"{self}: {run.world.no_disk}")
            return
        disk.fill()
        try:
            end = time.monotonic() + LONGEST_AGONY_S
            while broker.running and time.monotonic() < end:
                run.wait(0.1)
            run.wait(self.seconds)
        finally:
            disk.free()
        # One that could not write may be there and useless.
        broker.kill()
        broker.start()

    def __str__(self) -> str:
        return "disk full at the broker"


@dataclass(frozen=True, slots=True)
class CrashAt(Fault):
    """The driver dies at a crash point."""

    point: CrashPoint
    nth: int = 1

    def strike(self, run: Run) -> None:
        driver = run.restart(crash_at(self.point, self.nth))
        run.wait_until(lambda: run.has_finished or run.driver is not driver, str(self.point))

    def __str__(self) -> str:
        return f"crash at {self.point}:{self.nth}"


def kill_driver(run: Run, *, alone: bool = False) -> None:
    """Kill the driver with -9; under a supervisor only that one, which starts the next."""
    if run.supervised:
        if (pid := run.driver.supervised()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif alone:
        with suppress(ProcessLookupError):
            os.kill(run.driver.pid, signal.SIGKILL)
    else:
        run.driver.kill()
