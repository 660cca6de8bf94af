import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import crash_points
from penstock.crash_points import CrashPoint, arm, arm_from_environment, disarm, reach
from penstock.errors import OptionValueError

PROGRAM = """
from penstock.crash_points import CrashPoint, reach
for n in range(3):
    reach(CrashPoint.JOB_FINISHING)
    reach(CrashPoint.JOB_FINISHED)
    print(n, flush=True)
"""


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    disarm()
    yield
    disarm()


def run(**environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.split()


def test_an_armed_process_dies_at_the_nth_time_and_a_restarted_one_does_not(tmp_path: Path) -> None:
    log, once = tmp_path / "log", tmp_path / "once"
    once.mkdir()
    environment = {
        "PENSTOCK_CRASH_AT": "job.finished:2",
        "PENSTOCK_CRASH_LOG": str(log),
        "PENSTOCK_CRASH_ONCE_DIR": str(once),
    }
    assert run(**environment) == (-signal.SIGKILL, ["0"])
    assert run(**environment) == (0, ["0", "1", "2"])
    assert log.read_text() == "job.finished\n"


def test_a_point_fires_only_the_nth_time() -> None:
    fired: list[int] = []
    reach(CrashPoint.JOB_FINISHED)
    arm(CrashPoint.JOB_FINISHED, 2, lambda: fired.append(1))
    for _ in range(4):
        reach(CrashPoint.JOB_FINISHING)
        reach(CrashPoint.JOB_FINISHED)
        fired.append(0)
    assert fired == [0, 1, 0, 0, 0]


def test_a_disarmed_point_does_not_fire() -> None:
    arm(CrashPoint.JOB_FINISHED)
    disarm()
    reach(CrashPoint.JOB_FINISHED)


@pytest.mark.parametrize(
    "setting", ["nowhere", "job.finished:0", "job.finished:x", "job.finished:-1"]
)
def test_an_environment_with_an_unknown_point_is_refused(setting: str) -> None:
    with pytest.raises(OptionValueError, match=r"PENSTOCK_CRASH_AT.*job\.finished"):
        arm_from_environment({"PENSTOCK_CRASH_AT": setting})
    assert crash_points._armed is None


def test_names_of_points_are_unique() -> None:
    assert len({point.value for point in CrashPoint}) == len(CrashPoint.__members__)
