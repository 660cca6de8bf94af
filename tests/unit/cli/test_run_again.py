"""What the same command does after the end of its job: report it, refuse it, or run it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.checkpoint.storage.job_dir import jobs_in
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.crash_points import CRASH_AT, CrashPoint
from tests.unit.cli.job_fixtures import COUNT, endless_job, penstock
from tests.unit.cli.test_run import Counting

END_ONCE = """
import os, signal
from pathlib import Path

first = Path(sys.argv[1]).with_name("first")
if not first.exists():
    first.touch()
    {how}
"""


class Commands(Counting):
    """The same program, always run in a process of its own and to the end of that."""

    def __init__(self, tmp_path: Path, end: str = "") -> None:
        super().__init__(tmp_path, 100, 0)
        self.program.write_text(COUNT.replace('print("done")\n', f'{end}print("done")\n'))

    def run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *self.words(*options)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def journal(self) -> JournalState:
        (job,) = jobs_in(self.checkpoints)
        return Journal(job.storage, job.key).state()


def is_dirty(state: JournalState) -> bool:
    assert state.ended is not None
    return state.ended.driver is not None


@pytest.mark.crash
def test_a_job_whose_driver_is_killed_after_its_end_is_reported_and_not_run_again(
    tmp_path: Path,
) -> None:
    commands = Commands(tmp_path)
    assert commands.run(**{CRASH_AT: CrashPoint.JOB_FINISHED}).returncode == -9
    assert is_dirty(commands.journal())
    again = commands.run()
    assert (again.returncode, again.stdout) == (0, "done\n")
    assert "WARNING Job 'count' is FINISHED; its driver died after that" in again.stderr
    assert commands.is_counted_once()
    assert commands.journal().attempts_so_far == 1
    # It was reported: the next start is a new run.
    assert not is_dirty(commands.journal())
    assert commands.run().returncode == 0
    assert commands.journal().attempts_so_far == 2


@pytest.mark.crash
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("from penstock.errors import InvalidJobError; raise InvalidJobError('next job')", 1),
    ],
    ids=["terminated", "failed"],
)
def test_a_program_that_ends_too_early_does_not_run_its_finished_job_again(
    tmp_path: Path, how: str, code: int
) -> None:
    commands = Commands(tmp_path, END_ONCE.format(how=how))
    assert commands.run().returncode == code
    assert is_dirty(commands.journal())
    again = commands.run()
    assert (again.returncode, again.stdout) == (0, "done\n")
    assert commands.is_counted_once()
    assert not is_dirty(commands.journal())


@pytest.mark.crash
def test_a_program_that_exits_by_itself_has_ended_whatever_its_exit_code(tmp_path: Path) -> None:
    commands = Commands(tmp_path, END_ONCE.format(how="sys.exit(4)"))
    assert commands.run().returncode == 4
    assert not is_dirty(commands.journal())
    assert commands.run().returncode == 0
    assert commands.journal().attempts_so_far == 2


@pytest.mark.crash
def test_other_options_are_another_command(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    assert commands.run(**{CRASH_AT: CrashPoint.JOB_FINISHED}).returncode == -9
    assert commands.run("-D", "pipeline.global-job-parameters=day:2").returncode == 0
    assert commands.journal().attempts_so_far == 2


@pytest.mark.crash
def test_each_process_that_a_program_forks_runs_its_job(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    text = commands.program.read_text()
    body = "".join(f"    {line}\n" for line in text.splitlines())
    commands.program.write_text(
        "import multiprocessing, os, sys\n"
        f"def work():\n{body}\n"
        "for _ in range(2):\n"
        "    child = multiprocessing.get_context('fork').Process(target=work)\n"
        "    child.start()\n"
        "    child.join()\n"
        "if not os.fork():\n"
        "    work()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "if not os.fork():\n"
        "    work()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    ended = commands.run()
    assert ended.returncode == 0, ended.stderr
    assert commands.journal().attempts_so_far == 4


def test_a_stopped_job_is_refused_without_s_or_fresh(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    client = endless_job(commands.checkpoints, name="count")
    savepoint = client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    refused = penstock(*commands.words())
    assert (refused.exit_code, refused.stdout) == (3, "")
    lines = refused.stderr.splitlines()
    assert f"  penstock run -s {savepoint} {commands.program}" in lines
    assert f"  penstock run --fresh {commands.program}" in lines
    assert penstock(*commands.words("-s", savepoint, "-n")).exit_code == 0
    assert commands.journal().attempts[-1].restored_path == savepoint


def test_a_stopped_job_starts_from_scratch_if_the_configuration_says_so(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    client = endless_job(commands.checkpoints, name="count")
    client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    assert penstock(*commands.words("-D", "penstock.recovery.fresh=true")).exit_code == 0
    assert commands.is_counted_once()
