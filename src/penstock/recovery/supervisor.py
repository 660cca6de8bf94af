"""A parent process that starts a driver again when it dies.

The driver is a child in its own process group. The supervisor notices at once when it dies; a
driver that stops sending heartbeats through a pipe is killed first. The supervisor keeps nothing on
disk, so it may be killed at any time: the driver continues, warns that it is not supervised any
more, and a new supervisor is refused as long as the driver lives.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Self

from penstock.checkpoint.settings import read_checkpoint_settings
from penstock.common.configuration import Configuration
from penstock.recovery.restart_strategy import (
    GiveUp,
    History,
    Restart,
    RestartAfter,
    RestartStrategy,
    read_restart_strategy,
)

logger = logging.getLogger("penstock.recovery")

_VARIABLE = "PENSTOCK_SUPERVISOR"
_LONGEST_START_S = 60.0
_OVERSLEPT_S = 1.0
_GRACEFUL_REQUESTS = 2
_FAILED = 1


# -- the decision -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExitWith:
    """Exit with this code, like the driver."""

    code: int


def decide_after_exit(
    returncode: int,
    *,
    stop_requested: bool,
    strategy: RestartStrategy,
    history: History,
    now: float,
    random: Callable[[], float],
) -> ExitWith | RestartAfter | GiveUp:
    """Decide about a driver that has exited; `returncode` is negative if a signal ended it.

    A driver that exits by itself, with any code, has ended. One that a signal ended has died,
    unless it was requested to stop. The restart strategy counts deaths like failures of a job.
    """
    if returncode >= 0:
        return ExitWith(returncode)
    if stop_requested:
        return ExitWith(128 - returncode)
    return strategy.decide(history, now, random)


# -- the driver's side --------------------------------------------------------------------------

_since: float | None = None
_died: float | None = None


def report_to_supervisor() -> bool:
    """Start sending heartbeats and return True if a supervisor started this process.

    Called once by a driver, before it does anything that takes time. The processes that it starts
    are not supervised.
    """
    global _since, _died
    passed = os.environ.pop(_VARIABLE, None)
    if passed is None:
        return False
    descriptor, interval, since, *died = passed.split()
    os.set_inheritable(int(descriptor), False)
    _since, _died = float(since), float(died[0]) if died else None
    beat = threading.Thread(
        target=_beat, args=(int(descriptor), float(interval)), name="heartbeat", daemon=True
    )
    beat.start()
    return True


def supervised_since() -> float | None:
    """Return when the supervisor of this process started, None if there is none."""
    return _since


def driver_died_at() -> float | None:
    """Return when the previous driver died, None if none is known."""
    return _died


def _beat(descriptor: int, interval_s: float) -> None:
    while True:
        try:
            os.write(descriptor, b".")
        except OSError:
            logger.warning(
                "the supervisor is gone: this driver continues, but is not started again if it dies"
            )
            return
        time.sleep(interval_s)


# -- the supervisor's side ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The interval of a driver's heartbeats, and the silence after which it is killed."""

    interval_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class _Beat:
    driver: _Driver


@dataclass(frozen=True, slots=True)
class _Exited:
    driver: _Driver


@dataclass(frozen=True, slots=True)
class _SignalReceived:
    signal: int


_Event = _Beat | _Exited | _SignalReceived


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Runs one command until it exits by itself; used in the main thread of a process.

    The command is the same for every start: the journal says where the job resumes.
    """

    command: Sequence[str]
    strategy: RestartStrategy
    heartbeat: Heartbeat
    say: Callable[[str], None] = _to_stderr
    _events: queue.SimpleQueue[_Event] = field(default_factory=queue.SimpleQueue, init=False)
    _signals_received: list[int] = field(default_factory=list, init=False)
    _since: float = field(default_factory=time.time, init=False)

    @classmethod
    def configured(cls, command: Sequence[str], configuration: Configuration) -> Self:
        """Return the supervisor of a command, as the job's settings say.

        With a supervisor a job restarts by default, unless the settings disable it.
        """
        strategy = read_restart_strategy(configuration, checkpointing=True)
        settings = read_checkpoint_settings(configuration)
        heartbeat = Heartbeat(settings.heartbeat_interval_s, settings.heartbeat_timeout_s)
        return cls(command, strategy, heartbeat)

    def run(self) -> int:
        """Run the driver, and restart it if it dies; return the exit code.

        The first Ctrl-C, SIGTERM or SIGHUP requests the driver to stop, the second to stop at once,
        the third kills it.
        """
        history = History()
        attempt = 1
        died: float | None = None
        with self._signals():
            while True:
                driver = _Driver(self.command, self.heartbeat, self._since, died, self._events)
                silent_s = self._watch(driver)
                died = time.time() - (silent_s or 0.0)
                returncode = driver.collect()
                now = time.monotonic()
                decision = decide_after_exit(
                    returncode,
                    stop_requested=bool(self._signals_received),
                    strategy=self.strategy,
                    history=history,
                    now=now,
                    random=random.random,
                )
                if isinstance(decision, ExitWith):
                    return decision.code
                what = f"driver died (signal {-returncode})"
                if silent_s is not None:
                    what = f"driver was silent for {silent_s:.1f} s and was killed"
                if isinstance(decision, GiveUp):
                    self.say(f"{what}; it is not started again: {decision.reason}")
                    return _FAILED
                if decision.counts:
                    history = self.strategy.after(history, Restart(now, now + decision.seconds))
                attempt += 1
                self.say(f"{what}, attempt {attempt} in {decision.seconds:.1f} s")
                received = self._sleep(now + decision.seconds)
                if received is not None:
                    return 128 + received

    def _watch(self, driver: _Driver) -> float | None:
        """Wait until a driver has exited; return how long it was silent if that is why."""
        heard = time.monotonic()
        deadline: float | None = heard + max(self.heartbeat.timeout_s, _LONGEST_START_S)
        silent_s = None
        while True:
            event = self._next(deadline)
            now = time.monotonic()
            match event:
                case _Exited(it) if it is driver:
                    return silent_s
                case _Beat(it) if it is driver and deadline is not None:
                    heard, deadline = now, now + self.heartbeat.timeout_s
                case _SignalReceived(number):
                    self._forward(number, driver)
                case None if deadline is not None and now > deadline + _OVERSLEPT_S:
                    # This process was suspended for a while, and perhaps so was the driver.
                    deadline = now + self.heartbeat.timeout_s
                case None:
                    silent_s, deadline = now - heard, None
                    driver.kill()

    def _sleep(self, until: float) -> int | None:
        """Wait before a restart; return the signal that requests to stop, None if there is none."""
        while True:
            event = self._next(until)
            if event is None:
                return None
            if isinstance(event, _SignalReceived):
                self._signals_received.append(event.signal)
                return event.signal

    def _next(self, deadline: float | None) -> _Event | None:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _forward(self, number: int, driver: _Driver) -> None:
        self._signals_received.append(number)
        if len(self._signals_received) > _GRACEFUL_REQUESTS:
            driver.kill()
        else:
            driver.send(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def received(number: int, frame: FrameType | None) -> None:
            self._events.put(_SignalReceived(number))

        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        # Signals that nohup and the like ignore stay ignored.
        handled = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, received) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Driver:
    """One driver process, and two threads that wait for its heartbeats and its exit."""

    def __init__(
        self,
        command: Sequence[str],
        heartbeat: Heartbeat,
        since: float,
        died: float | None,
        events: queue.SimpleQueue[_Event],
    ) -> None:
        self._events = events
        ours, theirs = os.pipe()
        passed = [theirs, heartbeat.interval_s, since, *([] if died is None else [died])]
        try:
            # In its own process group, or the terminal's Ctrl-C would reach it twice; such a group
            # must not read from the terminal.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, _VARIABLE: " ".join(map(repr, passed))},
                pass_fds=(theirs,),
                process_group=0,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        for target, args in ((self._listen, (ours,)), (self._await_exit, ())):
            threading.Thread(target=target, args=args, daemon=True).start()

    def send(self, number: int) -> None:
        """Send a signal to the driver, not to the processes that it has started."""
        # Not through Popen, which would reap an exited process before `_await_exit` does.
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the driver."""
        self.send(signal.SIGKILL)

    def collect(self) -> int:
        """Return the exit code of a driver that has exited, and kill what a dead one has left.

        A driver that a signal ended could not stop the processes it had started, like Spark's JVM.
        """
        if hasattr(os, "waitid"):
            exited = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            if exited is not None and exited.si_code != os.CLD_EXITED:
                # Not reaped yet, so its pid has not been used again.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _listen(self, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as beats:
            while beats.read(4096):
                self._events.put(_Beat(self))

    def _await_exit(self) -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._events.put(_Exited(self))
