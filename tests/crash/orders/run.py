"""One run of the job: its driver, which is started again whenever it dies, and its input."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.ids import JobKey
from tests.crash.driver import Driver
from tests.crash.orders.broken import BREAK
from tests.crash.orders.events import Order
from tests.crash.orders.feed import Feed
from tests.crash.orders.program import JOB, Variant
from tests.crash.orders.world import World

MOST_STARTS = 25
LONGEST_WAIT_S = 60.0
LONGEST_WAIT_ON_SPARK_S = 120.0
TRICKLE_EVERY_S = 0.1
TRICKLE_SHARE = 0.02
"""Of the orders that are left, in a second."""
LOOK_EVERY_S = 0.15
"""Not too often: a look into the journal reads all of it."""
KILLED = -9


class OrdersDriver(Driver):
    """A process that runs the orders pipeline."""

    program = "tests.crash.orders.program"
    forks = False  # it starts as its users would start it


class Run:
    """The job while it runs; waiting here also restarts it when it dies.

    A driver that died is started again, as an operator would do it. With `supervised` its
    supervisor does that, and only a supervisor that gave up is started again.
    """

    def __init__(
        self,
        world: World,
        variant: Variant,
        made: Sequence[Order],
        *,
        supervised: bool = False,
        broken: str = "",
    ) -> None:
        self.world = world
        self.variant = variant
        self.supervised = supervised
        self.feed = Feed(world.broker.direct, variant.orders, made, 0.02)
        self.starts = 0
        self.gave_up: list[str] = []
        """The last words of drivers that ended by themselves before the job's end."""
        self.unplayed: list[str] = []
        """Faults that this machine has not the means for, and why."""
        self.has_finished = False
        self._made = made
        self._environment = {BREAK: broken} if broken else {}
        self._last_trickle = time.monotonic()
        self._driver: Driver | None = None
        self._others: list[Driver] = []

    @property
    def driver(self) -> Driver:
        """The current driver."""
        assert self._driver is not None
        return self._driver

    def start(self, environment: Mapping[str, str] | None = None) -> Driver:
        """Start a driver; the one before has died or is a zombie."""
        assert self.starts < MOST_STARTS, f"it died too often:\n{self.gave_up[-3:]}"
        self.starts += 1
        environment = {**self._environment, **(environment or {})}
        self._driver = OrdersDriver(self.variant, environment, supervised=self.supervised)
        self._others.append(self._driver)
        return self._driver

    def restart(self, environment: Mapping[str, str]) -> Driver:
        """Kill the driver, and start one that has something to expect."""
        self.driver.kill()
        return self.start(environment)

    def tend(self) -> None:
        """Let some more orders come, and start the driver again if it has died."""
        self._trickle()
        if self.has_finished or self.driver.is_running:
            return
        code = self.driver.wait()
        # A job that died after its last journal entry must not be started again.
        if code == 0 or self.journal.is_over:
            self.has_finished = True
            return
        if code != KILLED:
            self.gave_up.append(_last_line(self.driver.words()))
        self.start()

    def wait(self, seconds: float) -> None:
        """Let some time pass."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.03)

    def wait_until(
        self, is_true: Callable[[], bool], what: str, seconds: float | None = None
    ) -> None:
        """Wait until something is true; too long is an error."""
        longest = LONGEST_WAIT_ON_SPARK_S if self.variant.spark else LONGEST_WAIT_S
        seconds = longest if seconds is None else seconds
        end = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < end, (
                f"{what}: not within {seconds:g} s; the driver's last words:\n{self.driver.words()}"
            )
            self.tend()
            time.sleep(LOOK_EVERY_S)

    def wait_for_checkpoints(self, number: int) -> None:
        """Wait until more checkpoints are completed and committed than are now."""
        wanted = self.committed + number
        self.wait_until(
            lambda: self.has_finished or self.committed >= wanted, f"{number} more checkpoints"
        )

    @property
    def committed(self) -> int:
        """How many checkpoints are completed and committed: the highest id of one."""
        return max(self.journal.commits_done, default=0)

    @property
    def journal(self) -> JournalState:
        """What the job's journal says."""
        return Journal(JobDir(self.variant.checkpoints, JobKey(JOB)).storage, JOB).state()

    def _trickle(self) -> None:
        """Release a part of what is left for each second that has passed: it never ends."""
        now = time.monotonic()
        if now - self._last_trickle > TRICKLE_EVERY_S:
            self._last_trickle = now
            left = len(self._made) - self.feed.released
            self.feed.release(self.feed.released + int(left * TRICKLE_SHARE * TRICKLE_EVERY_S))

    def close(self) -> None:
        """End all processes."""
        self.feed.close()
        for driver in self._others:
            with suppress(Exception):
                driver.thaw()
            driver.kill()


def _last_line(words: str) -> str:
    return next((line for line in reversed(words.splitlines()) if line.strip()), "")[:300]
