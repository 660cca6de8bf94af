"""Who drives a job now.

The lease keeps a second driver from starting by mistake, and lets a new one start at once where
the old one is known to be dead. It decides nothing about what counts: two drivers that both think
the job is theirs are told apart by the journal.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from penstock.checkpoint.job_dir import JobDir
from penstock.errors import JobAlreadyRunningError
from penstock.recovery.processes import machine, start_of

__all__ = [
    "Alive",
    "Dead",
    "Free",
    "Lease",
    "Owner",
    "Silent",
    "Standing",
    "read_owner",
    "refuse_second_driver",
    "standing",
]

logger = logging.getLogger("penstock.recovery")


class Owner(msgspec.Struct, frozen=True):
    """The driver that wrote last, and when."""

    host: str
    machine: str
    pid: int
    started: int
    """When the process started: a pid is given again, a pid and its start are not."""
    attempt: str
    beat: float

    @property
    def attempt_number(self) -> int:
        """The attempt as a number: of two drivers the one with the higher number is in office."""
        digits = self.attempt[1:]
        return int(digits) if digits.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody drives the job."""


@dataclass(frozen=True, slots=True)
class Dead:
    """The driver's process is gone."""

    owner: Owner
    since: float
    """When it was last heard of."""


@dataclass(frozen=True, slots=True)
class Silent:
    """The driver was not heard of for too long; it may be taken over, the journal fences it."""

    owner: Owner
    since: float


@dataclass(frozen=True, slots=True)
class Alive:
    """The driver was heard of lately."""

    owner: Owner


Standing = Free | Dead | Silent | Alive


def read_owner(job_dir: JobDir) -> Owner | None:
    """Return the driver that wrote last; None if it has left, or nothing readable is there."""
    try:
        return msgspec.json.decode(job_dir.driver.read_bytes(), type=Owner)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def standing(job_dir: JobDir, timeout_s: float, now: float) -> Standing:
    """Return how the job's driver stands; `timeout_s` is how long it may be silent."""
    owner = read_owner(job_dir)
    if owner is None:
        return Free()
    return decide_standing(owner, timeout_s, now, machine(), start_of)


def decide_standing(
    owner: Owner,
    timeout_s: float,
    now: float,
    this_machine: str,
    started: Callable[[int], int | None],
) -> Standing:
    """Decide from the lease, the clock and, on the driver's own machine, its process."""
    is_here = owner.machine == this_machine and owner.host == socket.gethostname()
    if is_here and started(owner.pid) != owner.started:
        return Dead(owner, owner.beat)
    # Also a beat from far in the future says nothing about now.
    if abs(now - owner.beat) > timeout_s:
        return Silent(owner, owner.beat)
    return Alive(owner)


def refuse_second_driver(job_dir: JobDir, timeout_s: float, now: float) -> Standing:
    """Return how the job's last driver stands, if a new one may start.

    Called once by a driver, before its first attempt; later ones are of the same lease.

    Raises:
        JobAlreadyRunningError: if another driver is alive.
    """
    found = standing(job_dir, timeout_s, now)
    if isinstance(found, Alive):
        owner = found.owner
        heard = datetime.fromtimestamp(owner.beat, UTC).isoformat(sep=" ", timespec="seconds")
        raise JobAlreadyRunningError(job_dir.key, owner.host, owner.pid, heard)
    return found


class Lease:
    """This process's hold on a job: a file, rewritten every `interval_s` by a thread.

    A driver takes it after it has won the journal, once per attempt, and releases it when the job
    is over. A process that is killed leaves the file behind.
    """

    def __init__(
        self, job_dir: JobDir, interval_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._job_dir = job_dir
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._attempt = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = False

    @property
    def is_lost(self) -> bool:
        """Whether another driver has taken the job; the journal will say so too."""
        return self._lost

    def take(self, attempt: str) -> None:
        """Say that this process drives the job, and go on saying it."""
        with self._lock:
            self._attempt = attempt
            self._lost = False
            self._write()
            if self._thread is None or not self._thread.is_alive():
                self._stop.clear()
                self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
                self._thread.start()

    def release(self) -> None:
        """Say that nobody drives the job, unless another driver has taken it."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._lock:
            owner = read_owner(self._job_dir)
            if owner is not None and not self._is_above(owner):
                self._job_dir.driver.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                with self._lock:
                    owner = read_owner(self._job_dir)
                    if owner is not None and self._is_above(owner):
                        self._lost = True
                        return
                    self._write()
            except OSError as error:
                logger.warning("cannot renew the lease of job %s: %s", self._job_dir.key, error)

    def _is_above(self, owner: Owner) -> bool:
        return owner.attempt_number > self._me().attempt_number

    def _write(self) -> None:
        data = msgspec.json.encode(self._me())
        self._job_dir.storage.replace(self._job_dir.driver.name, data)

    def _me(self) -> Owner:
        pid = os.getpid()
        return Owner(
            host=socket.gethostname(),
            machine=machine(),
            pid=pid,
            started=start_of(pid) or 0,
            attempt=self._attempt,
            beat=self._clock(),
        )
