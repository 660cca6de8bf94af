"""A parent process that starts a driver again when it dies.

The driver is a child in a process group of its own. Its death wakes the supervisor at once, and
through a pipe it says now and then that it lives: one that has stopped saying so is killed first.
What the supervisor knows is in its memory only; what counts is in the job's journal. So it may be
killed at any time: the driver goes on, warns that nobody watches it any more, and a new
supervisor is refused for as long as the driver lives.
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
from dataclasses import dataclass
from types import FrameType

from penstock.recovery.restart import GiveUp, Restart, RestartAfter, RestartStrategy

__all__ = [
    "Heartbeat",
    "PassOn",
    "Supervisor",
    "decide_after_exit",
    "driver_died",
    "report_to_supervisor",
    "supervised_since",
]

logger = logging.getLogger("penstock.recovery")

_VARIABLE = "PENSTOCK_SUPERVISOR"
_LONGEST_START_S = 60.0
_OVERSLEPT_S = 1.0
_GRACEFUL_REQUESTS = 2
_FAILED = 1


# -- the decision -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PassOn:
    """End as the driver has ended."""

    code: int


def decide_after_exit(
    returncode: int,
    *,
    asked_to_end: bool,
    strategy: RestartStrategy,
    history: Sequence[Restart],
    now: float,
    random: Callable[[], float],
) -> PassOn | RestartAfter | GiveUp:
    """Decide about a driver that is gone; `returncode` is negative if a signal ended it.

    A driver that exits by itself, with whatever code, has come to an end. One that a signal ended
    has died, unless it had been asked to end. Deaths count by the restart strategy as failures of
    a job do.
    """
    if returncode >= 0:
        return PassOn(returncode)
    if asked_to_end:
        return PassOn(128 - returncode)
    return strategy.decide(history, now, random)


# -- the driver's side --------------------------------------------------------------------------

_since: float | None = None
_died: float | None = None


def report_to_supervisor() -> bool:
    """Begin to say that this process lives, if a supervisor has started it; tell whether.

    Called once by a driver, before it does anything that takes time. The processes it starts
    are not supervised.
    """
    global _since, _died
    given = os.environ.pop(_VARIABLE, None)
    if given is None:
        return False
    descriptor, interval, since, *died = given.split()
    os.set_inheritable(int(descriptor), False)
    _since, _died = float(since), float(died[0]) if died else None
    beat = threading.Thread(
        target=_beat, args=(int(descriptor), float(interval)), name="heartbeat", daemon=True
    )
    beat.start()
    return True


def supervised_since() -> float | None:
    """Return when the supervisor of this process was started, None if there is none."""
    return _since


def driver_died() -> float | None:
    """Return when the driver died that this process takes the place of, None if none is known."""
    return _died


def _beat(descriptor: int, interval_s: float) -> None:
    while True:
        try:
            os.write(descriptor, b".")
        except OSError:
            logger.warning(
                "the supervisor is gone: this driver goes on, but nobody starts it again if it dies"
            )
            return
        time.sleep(interval_s)


# -- the supervisor's side ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """How often a driver says that it lives, and how long it may say nothing; in seconds."""

    interval_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class _Beat:
    driver: _Driver


@dataclass(frozen=True, slots=True)
class _Exited:
    driver: _Driver


@dataclass(frozen=True, slots=True)
class _Asked:
    signal: int


_Event = _Beat | _Exited | _Asked


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Supervisor:
    """Runs one command until it ends by itself; made and run in a process's main thread.

    The command is the same for every start: a job finds in its journal where it was.
    """

    def __init__(
        self,
        command: Sequence[str],
        strategy: RestartStrategy,
        heartbeat: Heartbeat,
        say: Callable[[str], None] = _to_stderr,
    ) -> None:
        self._command = list(command)
        self._strategy = strategy
        self._heartbeat = heartbeat
        self._say = say
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._asked: list[int] = []
        self._since = time.time()

    def run(self) -> int:
        """Start the driver, again and again if need be; return the exit code to end with.

        The first Ctrl-C, SIGTERM or SIGHUP asks the driver to end, the second to end at once, the
        third kills it.
        """
        history: list[Restart] = []
        attempt = 1
        died: float | None = None
        with self._signals():
            while True:
                driver = _Driver(self._command, self._heartbeat, self._since, died, self._events)
                silent_s = self._watch(driver)
                died = time.time() - (silent_s or 0.0)
                returncode = driver.collect()
                now = time.monotonic()
                decision = decide_after_exit(
                    returncode,
                    asked_to_end=bool(self._asked),
                    strategy=self._strategy,
                    history=history,
                    now=now,
                    random=random.random,
                )
                if isinstance(decision, PassOn):
                    return decision.code
                what = f"driver died (signal {-returncode})"
                if silent_s is not None:
                    what = f"driver was silent for {silent_s:.1f} s and was killed"
                if isinstance(decision, GiveUp):
                    self._say(f"{what}; it is not started again: {decision.reason}")
                    return _FAILED
                if decision.counts:
                    history.append(Restart(now, now + decision.seconds))
                attempt += 1
                self._say(f"{what}, attempt {attempt} in {decision.seconds:.1f} s")
                asked = self._sleep(now + decision.seconds)
                if asked is not None:
                    return 128 + asked

    def _watch(self, driver: _Driver) -> float | None:
        """Wait until a driver is gone; return how long it was silent if it was killed for that."""
        heard = time.monotonic()
        deadline: float | None = heard + max(self._heartbeat.timeout_s, _LONGEST_START_S)
        silent_s = None
        while True:
            event = self._next(deadline)
            now = time.monotonic()
            match event:
                case _Exited(it) if it is driver:
                    return silent_s
                case _Beat(it) if it is driver and deadline is not None:
                    heard, deadline = now, now + self._heartbeat.timeout_s
                case _Asked(number):
                    self._forward(number, driver)
                case None if deadline is not None and now > deadline + _OVERSLEPT_S:
                    # This process did not run for a while: so perhaps did the driver.
                    deadline = now + self._heartbeat.timeout_s
                case None:
                    silent_s, deadline = now - heard, None
                    driver.kill()

    def _sleep(self, until: float) -> int | None:
        """Wait before a start; return the signal by which somebody asked to end."""
        while True:
            event = self._next(until)
            if event is None:
                return None
            if isinstance(event, _Asked):
                self._asked.append(event.signal)
                return event.signal

    def _next(self, deadline: float | None) -> _Event | None:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _forward(self, number: int, driver: _Driver) -> None:
        self._asked.append(number)
        if len(self._asked) > _GRACEFUL_REQUESTS:
            driver.kill()
        else:
            driver.ask(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def asked(number: int, frame: FrameType | None) -> None:
            self._events.put(_Asked(number))

        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        # What nohup and the like have set stays.
        heard = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, asked) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Driver:
    """One child process, and the two threads that hear of it."""

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
        told = [theirs, heartbeat.interval_s, since, *([] if died is None else [died])]
        try:
            # In a group of its own, or the terminal's Ctrl-C would reach it twice; such a group
            # must not read from the terminal.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, _VARIABLE: " ".join(map(repr, told))},
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

    def ask(self, number: int) -> None:
        """Ask the driver, not what it started, to end."""
        # Not by Popen, which would collect one that is gone and take it from `_await_exit`.
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it, whatever it does."""
        self.ask(signal.SIGKILL)

    def collect(self) -> int:
        """Return how a driver that is gone ended; of one that died nothing stays behind.

        A driver that a signal ended could not end what it had started, as Spark's JVM.
        """
        if hasattr(os, "waitid"):
            gone = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            if gone is not None and gone.si_code != os.CLD_EXITED:
                # Not collected yet, so its id is still its own.
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
