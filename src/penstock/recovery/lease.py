"""The lease of the driver that runs a job.

It keeps a second driver from starting by mistake, and lets a new one start at once if the old one
is known to be dead. It does not fence: if two drivers both believe that they run the job, the
journal decides. But it is how a driver that was suspended and replaced finds out, and stops.
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
from pathlib import Path

import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.common.text.tolerant_json import decode_json
from penstock.errors import FencedError, JobAlreadyRunningError, PenstockError
from penstock.ids import attempt_number

logger = logging.getLogger("penstock.recovery")

_STAT_STATE, _STAT_START = 0, 19
_DEAD_STATES = ("Z", "X")
_OBSERVATIONS, _OBSERVED_INTERVALS = 15, 1.5


class Owner(msgspec.Struct, frozen=True):
    """The driver that wrote the lease, and when."""

    host: str
    machine: str
    pid: int
    started: int
    """When the process started: a pid may be used again, but not with the same start."""
    attempt: str
    beat: float
    initializing: bool = False
    """Whether the driver is still starting the job: requests wait until the job runs."""

    @property
    def attempt_number(self) -> int:
        """The number of the attempt: of two drivers the one with the higher number owns the job."""
        return attempt_number(self.attempt) or 0

    def is_same_process(self, other: Owner) -> bool:
        """Whether the same process wrote both leases."""
        mine = self.host, self.machine, self.pid, self.started
        return mine == (other.host, other.machine, other.pid, other.started)


@dataclass(frozen=True, slots=True)
class Free:
    """No driver runs the job."""


@dataclass(frozen=True, slots=True)
class Dead:
    """The driver's process does not exist any more."""

    owner: Owner
    since: float
    """The last heartbeat."""


@dataclass(frozen=True, slots=True)
class Silent:
    """The last heartbeat is too old; the job may be taken over, the journal fences the driver."""

    owner: Owner
    since: float


@dataclass(frozen=True, slots=True)
class Alive:
    """The last heartbeat is recent."""

    owner: Owner


DriverStatus = Free | Dead | Silent | Alive


def read_owner(job_dir: JobDir) -> Owner | None:
    """Return the driver that wrote the lease last; None if it was released or is unreadable."""
    try:
        return decode_json(job_dir.storage.read(job_dir.driver.name), Owner)
    except (OSError, msgspec.DecodeError):
        return None


def _read_strictly(job_dir: JobDir) -> Owner | None:
    try:
        return decode_json(job_dir.storage.read(job_dir.driver.name), Owner)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, msgspec.DecodeError):
        return None


def driver_status(
    job_dir: JobDir, timeout_s: float, now: float, *, strict: bool = False
) -> DriverStatus:
    """Return the status of a job's driver; `timeout_s` is the heartbeat timeout.

    With `strict` a lease that cannot be read now is an error, and not taken for a missing one.
    """
    owner = _read_strictly(job_dir) if strict else read_owner(job_dir)
    if owner is None:
        return Free()
    return decide_driver_status(owner, timeout_s, now, machine_id(), process_start_time)


def decide_driver_status(
    owner: Owner,
    timeout_s: float,
    now: float,
    this_machine: str,
    start_time: Callable[[int], int | None],
) -> DriverStatus:
    """Decide from the lease, the clock and, on the driver's own machine, its process."""
    is_here = owner.machine == this_machine and owner.host == socket.gethostname()
    if is_here and start_time(owner.pid) != owner.started:
        return Dead(owner, owner.beat)
    # A heartbeat from far in the future says nothing about now, either.
    if abs(now - owner.beat) > timeout_s:
        return Silent(owner, owner.beat)
    return Alive(owner)


def refuse_second_driver(
    job_dir: JobDir,
    timeout_s: float,
    interval_s: float,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> DriverStatus:
    """Return the status of the job's last driver, if a new one may start.

    Called once by a driver, before its first attempt; all its attempts have the same lease. Clocks
    of two machines differ, and a clock may be set. So a driver that seems to be silent is observed
    for longer than a heartbeat interval: if its heartbeat changes, it is alive.

    Raises:
        JobAlreadyRunningError: if another driver is alive.
        OSError: if the lease cannot be read, so that this is not known.
    """
    status = driver_status(job_dir, timeout_s, clock(), strict=True)
    if isinstance(status, Silent):
        seen = status.owner
        for _ in range(_OBSERVATIONS):
            pause(_OBSERVED_INTERVALS * interval_s / _OBSERVATIONS)
            status = driver_status(job_dir, timeout_s, clock(), strict=True)
            if isinstance(status, Silent) and status.owner.beat != seen.beat:
                status = Alive(status.owner)
            if not isinstance(status, Silent):
                break
    if isinstance(status, Alive):
        owner = status.owner
        heard = datetime.fromtimestamp(owner.beat, UTC).isoformat(sep=" ", timespec="seconds")
        raise JobAlreadyRunningError(job_dir.key, owner.host, owner.pid, heard)
    return status


class Lease:
    """This process's lease on a job: a file that a thread rewrites every `interval_s`.

    A driver takes it in every attempt, after it has won the journal, and releases it when the job
    is over. A process that is killed leaves the file. `on_lost` is called, once and by the
    heartbeat thread, when another driver has taken the job.
    """

    def __init__(
        self,
        job_dir: JobDir,
        interval_s: float,
        journal: Journal | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_dir = job_dir
        self._interval_s = interval_s
        self._journal = journal
        self._clock = clock
        self._monotonic = monotonic
        self._renewed = 0.0
        self.on_lost: Callable[[FencedError], None] = _ignore
        # The job takes and releases, the heartbeat thread rewrites.
        self._lock = threading.Lock()
        self._attempt = ""
        self._initializing = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost: FencedError | None = None
        """Set when another driver has taken the job."""

    @property
    def is_lost(self) -> bool:
        """Whether another driver has taken the job; the journal will fence this one."""
        return self.lost is not None

    def check(self) -> None:
        """Raise if another driver has taken the job; any thread calls it before it has an effect.

        Costs nothing while heartbeats are on time: no other driver takes over before the heartbeat
        timeout, which is longer than the interval. A late heartbeat means that this process may
        have been suspended: then the journal is read. The process may also be suspended right
        after this: what follows must be harmless by its name or by the journal.

        Raises:
            FencedError: if another driver has taken the job.
        """
        if self.lost is not None:
            raise self.lost
        is_late = self._monotonic() - self._renewed > self._interval_s
        if is_late and self._journal is not None:
            self._journal.check_tail()

    def take(self, attempt: str, *, initializing: bool = False) -> None:
        """Write the lease for an attempt, and keep rewriting it."""
        with self._lock:
            self._attempt = attempt
            self._initializing = initializing
            self.lost = None
            self._write()
            if self._thread is None or not self._thread.is_alive():
                self._stop.clear()
                thread = threading.Thread(target=self._beat, name="lease", daemon=True)
                # In this order: a Ctrl-C may interrupt the start, and the release waits for it.
                thread.start()
                self._thread = thread

    def adopt(self, attempt: str) -> None:
        """Release the lease for an attempt whose driver died after the end of the job."""
        self._attempt = attempt

    def job_runs(self) -> None:
        """Write that the job is not initializing any more; never raises."""
        with self._lock:
            self._initializing = False
            try:
                owner = read_owner(self._job_dir)
                if owner is None or not self._is_newer(owner):
                    self._renew(owner)
            except (PenstockError, OSError) as error:
                logger.warning("cannot renew the lease of job %s: %s", self._job_dir.key, error)

    def release(self) -> None:
        """Delete the lease, unless another driver has taken the job."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        with self._lock:
            owner = read_owner(self._job_dir)
            if owner is not None and not self._is_newer(owner):
                self._job_dir.storage.delete(self._job_dir.driver.name)

    def _beat(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                with self._lock:
                    owner = read_owner(self._job_dir)
                    if owner is None or not self._is_newer(owner):
                        self._renew(owner)
                        continue
                    self.lost = FencedError(self._job_dir.key, self._attempt, owner.attempt)
            except FencedError as error:
                self.lost = error
            except (PenstockError, OSError) as error:
                logger.warning("cannot renew the lease of job %s: %s", self._job_dir.key, error)
                continue
            self.on_lost(self.lost)
            return

    def _renew(self, owner: Owner | None) -> None:
        """Write the lease again, unless another driver took the job and has ended it since."""
        if self._journal is not None and (owner is None or self._is_late):
            self._journal.check_tail()
        self._write()

    @property
    def _is_late(self) -> bool:
        # The thread wakes up a little after the interval.
        return self._monotonic() - self._renewed > 2 * self._interval_s

    def _is_newer(self, owner: Owner) -> bool:
        # A lease of this process with another attempt is damaged, and is written again.
        is_own = owner.is_same_process(self._owner())
        return not is_own and owner.attempt_number > (attempt_number(self._attempt) or 0)

    def _write(self) -> None:
        began = self._monotonic()
        self._job_dir.storage.replace(self._job_dir.driver.name, msgspec.json.encode(self._owner()))
        self._renewed = began

    def _owner(self) -> Owner:
        pid = os.getpid()
        return Owner(
            host=socket.gethostname(),
            machine=machine_id(),
            pid=pid,
            started=process_start_time(pid) or 0,
            attempt=self._attempt,
            beat=self._clock(),
            initializing=self._initializing,
        )


def is_running_here(host: str, machine: str, pid: int, started: int) -> bool:
    """Whether a process is running on this machine; false if it is not known."""
    is_here = machine == machine_id() and host == socket.gethostname()
    return is_here and process_start_time(pid) == started


def process_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not run.

    A process that was killed and that its parent has not reaped yet does not run. Where the system
    does not provide start times, every running process has started at 0.
    """
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return 0
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in brackets, may contain anything.
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STAT_STATE] in _DEAD_STATES else int(fields[_STAT_START])


def machine_id() -> str:
    """Return the scope within which pids can be compared: this boot and this pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _ignore(lost: FencedError) -> None:
    """Stand in for `on_lost` until a job sets it."""
