"""The supervisor, with real children that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.recovery.restart_strategy import (
    FixedDelay,
    GiveUp,
    History,
    NoRestart,
    Restart,
    RestartAfter,
)
from penstock.recovery.supervisor import ExitWith, Heartbeat, Supervisor, decide_after_exit

DRIVER = """
import os, signal, sys, time
from pathlib import Path
from penstock.recovery.supervisor import driver_died_at, report_to_supervisor, supervised_since
supervised = report_to_supervisor()
starts = Path(sys.argv[1])
number = len(starts.read_text().split()) if starts.exists() else 0
with starts.open("a") as file:
    file.write(f"{os.getpid()}\\n")
print(f"start {number + 1} {supervised} {supervised_since()} {driver_died_at()}", flush=True)
SCRIPT
"""

PARENT = """
import sys
from penstock.recovery.restart_strategy import FixedDelay
from penstock.recovery.supervisor import Heartbeat, Supervisor
command, interval, timeout, delay = sys.argv[1:4], *map(float, sys.argv[4:])
sys.exit(Supervisor(command, FixedDelay(3, delay), Heartbeat(interval, timeout)).run())
"""


# -- the decision -------------------------------------------------------------------------------

ONCE = FixedDelay(1, 2.5)
NEVER = History()
BEFORE = ONCE.after(NEVER, Restart(1.0, 3.5))


@pytest.mark.parametrize(
    ("returncode", "asked", "strategy", "history", "expected"),
    [
        (0, False, ONCE, NEVER, ExitWith(0)),
        (1, False, ONCE, NEVER, ExitWith(1)),
        (3, False, ONCE, NEVER, ExitWith(3)),
        (130, False, ONCE, NEVER, ExitWith(130)),
        (0, True, ONCE, NEVER, ExitWith(0)),
        (-9, False, ONCE, NEVER, RestartAfter(2.5)),
        (-11, False, ONCE, NEVER, RestartAfter(2.5)),
        (-15, False, ONCE, NEVER, RestartAfter(2.5)),
        (-9, True, ONCE, NEVER, ExitWith(137)),
        (-15, True, ONCE, NEVER, ExitWith(143)),
        (-9, False, ONCE, BEFORE, GiveUp),
        (-9, False, NoRestart(), NEVER, GiveUp),
    ],
)
def test_only_a_driver_that_died_is_started_again(
    returncode: int,
    asked: bool,
    strategy: FixedDelay | NoRestart,
    history: History,
    expected: object,
) -> None:
    decision = decide_after_exit(
        returncode,
        stop_requested=asked,
        strategy=strategy,
        history=history,
        now=10.0,
        random=lambda: 0.5,
    )
    assert decision == expected or (expected is GiveUp and isinstance(decision, GiveUp))


# -- real processes -----------------------------------------------------------------------------


class Watched:
    """A driver program in a file, and the lines its supervisor says."""

    def __init__(self, tmp_path: Path, script: str) -> None:
        self.program = tmp_path / "driver.py"
        self.program.write_text(DRIVER.replace("SCRIPT", script))
        self.starts = tmp_path / "starts"
        self.said: list[str] = []

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(self.program), str(self.starts)]

    def pids(self) -> list[int]:
        return [int(pid) for pid in self.starts.read_text().split()] if self.starts.exists() else []

    def run(self, restarts: int = 3, delay_s: float = 0.01, beat: Heartbeat | None = None) -> int:
        strategy = FixedDelay(restarts, delay_s)
        return Supervisor(self.command, strategy, beat or Heartbeat(10, 50), self.said.append).run()


def eventually(told: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not told():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.parametrize("code", [0, 1, 42])
def test_the_exit_code_of_a_driver_is_passed_on(tmp_path: Path, code: int) -> None:
    watched = Watched(tmp_path, f"sys.exit({code})")
    assert (watched.run(), watched.said, len(watched.pids())) == (code, [], 1)


def test_a_driver_that_is_killed_comes_back(tmp_path: Path) -> None:
    watched = Watched(
        tmp_path, "os.kill(os.getpid(), signal.SIGKILL) if number < 2 else sys.exit(7)"
    )
    assert watched.run() == 7
    assert watched.said == [
        "driver died (signal 9), attempt 2 in 0.0 s",
        "driver died (signal 9), attempt 3 in 0.0 s",
    ]
    assert len(set(watched.pids())) == 3


def test_a_death_is_noticed_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "sys.exit(0) if number else time.sleep(60)")
    killed: list[float] = []

    def kill() -> None:
        eventually(lambda: len(watched.pids()) == 1)
        os.kill(watched.pids()[0], signal.SIGKILL)
        killed.append(time.monotonic())

    noticed: list[float] = []
    supervisor = Supervisor(
        watched.command,
        FixedDelay(1, 0),
        Heartbeat(10, 50),
        lambda _: noticed.append(time.monotonic()),
    )
    thread = threading.Thread(target=kill)
    thread.start()
    assert supervisor.run() == 0
    thread.join()
    assert noticed[0] - killed[0] < 1.0


def test_a_driver_that_dies_too_often_is_left(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    assert watched.run(restarts=1) == 1
    assert watched.said == [
        "driver died (signal 11), attempt 2 in 0.0 s",
        (
            "driver died (signal 11); it is not started again: "
            "restart-strategy.fixed-delay.attempts allows 1 restart"
        ),
    ]


def test_a_driver_that_sleeps_is_killed_and_comes_back(tmp_path: Path) -> None:
    watched = Watched(
        tmp_path,
        "time.sleep(0.2)\nif number: sys.exit(0)\nos.kill(os.getpid(), signal.SIGSTOP)",
    )
    assert watched.run(beat=Heartbeat(0.05, 1.0)) == 0
    first, second = watched.pids()
    assert first != second
    assert not runs(first)
    (said,) = watched.said
    assert said.startswith("driver was silent for ")
    assert said.endswith(" s and was killed, attempt 2 in 0.0 s")


def test_what_a_dead_driver_had_started_is_ended_with_it(tmp_path: Path) -> None:
    watched = Watched(
        tmp_path,
        "import subprocess\n"
        "if number: sys.exit(0)\n"
        "helper = subprocess.Popen(['sleep', '600'])\n"
        "starts.with_name('helper').write_text(str(helper.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert watched.run() == 0
    helper = int((tmp_path / "helper").read_text())
    eventually(lambda: not runs(helper))


def test_a_driver_knows_since_when_it_is_supervised_and_its_children_are_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_REQUIRE_SERVERS", raising=False)
    before = time.time()
    watched = Watched(
        tmp_path,
        "assert not any(n.startswith('PENSTOCK_') for n in os.environ)\n"
        "os.kill(os.getpid(), 9) if not number else sys.exit(0)",
    )
    assert watched.run() == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert [line[:3] for line in lines] == [["start", "1", "True"], ["start", "2", "True"]]
    assert lines[0][3] == lines[1][3]
    assert before <= float(lines[0][3]) <= time.time()


def test_a_driver_knows_when_the_one_before_it_died(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(
        tmp_path,
        "if number: sys.exit(0)\n"
        "starts.with_name('last').write_text(str(time.time()))\n"
        "os.kill(os.getpid(), 9)",
    )
    assert watched.run(delay_s=0.5) == 0
    first, second = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert first[4] == "None"
    assert 0 <= float(second[4]) - float((tmp_path / "last").read_text()) < 0.5


def test_a_driver_that_was_silent_has_been_dead_since_it_was_last_heard(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(
        tmp_path,
        "time.sleep(0.2)\n"
        "if number: sys.exit(0)\n"
        "starts.with_name('last').write_text(str(time.time()))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)",
    )
    assert watched.run(beat=Heartbeat(0.05, 1.5)) == 0
    _, second = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert abs(float(second[4]) - float((tmp_path / "last").read_text())) < 1.0


# -- a supervisor that is itself a process ------------------------------------------------------


def supervise(
    watched: Watched, interval: float = 10, timeout: float = 50, delay: float = 0.01
) -> subprocess.Popen[str]:
    """Start a supervisor; its driver runs when this returns."""
    command = [sys.executable, "-c", PARENT, *watched.command]
    parent = subprocess.Popen(
        [*command, str(interval), str(timeout), str(delay)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: len(watched.pids()) == 1)
    return parent


GRACEFUL = """
def end(number, frame):
    print(f"asked by {number}", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
starts.with_name("ready").touch()
while True:
    time.sleep(0.01)
"""

STUBBORN = """
signal.signal(signal.SIGINT, lambda *_: print("no", flush=True))
starts.with_name("ready").touch()
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGTERM),
    ],
)
def test_a_signal_to_the_supervisor_reaches_the_driver(
    tmp_path: Path, sent: int, received: int
) -> None:
    watched = Watched(tmp_path, GRACEFUL)
    parent = supervise(watched)
    eventually((tmp_path / "ready").exists)
    parent.send_signal(sent)
    out, err = parent.communicate(timeout=30)
    assert parent.returncode == 130
    assert f"asked by {int(received)}" in out
    assert err == ""


def test_a_driver_that_does_not_listen_is_killed_at_the_third_request(tmp_path: Path) -> None:
    watched = Watched(tmp_path, STUBBORN)
    parent = supervise(watched)
    eventually((tmp_path / "ready").exists)
    assert parent.stdout is not None
    for _ in range(2):
        parent.send_signal(signal.SIGINT)
        while parent.stdout.readline() != "no\n":
            pass
    parent.send_signal(signal.SIGINT)
    out, _ = parent.communicate(timeout=30)
    assert (parent.returncode, "no\n" in out) == (137, False)
    assert not runs(watched.pids()[0])


def test_a_supervisor_that_waits_to_start_a_driver_can_be_ended(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "os.kill(os.getpid(), 9)")
    parent = supervise(watched, delay=60)
    assert parent.stderr is not None
    assert parent.stderr.readline() == "driver died (signal 9), attempt 2 in 60.0 s\n"
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=30)
    assert (parent.returncode, len(watched.pids())) == (143, 1)


def test_a_driver_outlives_its_supervisor_and_logs_it(tmp_path: Path) -> None:
    watched = Watched(
        tmp_path,
        "import logging\n"
        "logging.basicConfig(filename=starts.with_name('log'))\n"
        "while not starts.with_name('end').exists(): time.sleep(0.01)\n",
    )
    parent = supervise(watched, interval=0.05)
    parent.kill()
    parent.wait()
    eventually(
        lambda: (
            (tmp_path / "log").exists()
            and "the supervisor is gone: this driver continues" in (tmp_path / "log").read_text()
        )
    )
    (driver,) = watched.pids()
    assert runs(driver)
    (tmp_path / "end").touch()
    eventually(lambda: not runs(driver))
    parent.communicate()


@pytest.mark.crash
def test_a_supervisor_that_was_itself_suspended_kills_no_driver(tmp_path: Path) -> None:
    watched = Watched(
        tmp_path, "while not starts.with_name('end').exists(): time.sleep(0.01)\nsys.exit(5)"
    )
    parent = supervise(watched, interval=0.1, timeout=1.0)
    (driver,) = watched.pids()
    time.sleep(0.3)
    for process in (parent.pid, driver):
        os.kill(process, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(parent.pid, signal.SIGCONT)
    time.sleep(0.2)
    os.kill(driver, signal.SIGCONT)
    (tmp_path / "end").touch()
    parent.communicate(timeout=30)
    assert (parent.returncode, watched.pids()) == (5, [driver])
