"""Failed starts: their errors, what they leave behind, and where the next one starts."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.datastream.functions import CheckpointListener, MapFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import CorruptStateError, UserFunctionError
from penstock.graph.plan import Plan
from penstock.graph.regions import PipelinedRegion
from penstock.ids import StageId
from penstock.job.launch import launch
from penstock.job.launched_job import LaunchedJob
from penstock.job.submitter import Submitter
from penstock.recovery.lease import Owner, machine_id, process_start_time
from penstock.storage.local_storage import LocalStorage
from penstock.testing import Burst, Idle, ManualClock, Pause, ScriptedSource
from penstock.testing.inline import InlineSubmitter
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    die,
    flip_a_byte,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import collected, eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


class Unplugged(ScriptedSource):
    """A source whose input is missing."""

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        enumerator = super().enumerator(context)

        def start(positions: Mapping[str, int]) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/orders")

        enumerator.start = start  # type: ignore[method-assign]
        return enumerator


class WithoutInput(Program):
    """The same program with a missing input."""

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        source = Unplugged(self.script, Types.LONG())
        self.count(env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("numbers"))
        return env


def died(root: Path, name: str = "savepoints") -> tuple[int, Path]:
    """A job whose driver died; returns its newest checkpoint and an older savepoint."""
    program = Program(root, idle_after(50))
    job = program.launch()
    wait_for_records(job, 20)
    path = Path(job.savepoint(str(root / name)).result(20))
    wait_for_lines(program, 50)
    die(job)
    return program.journal().restorable[-1].checkpoint, path


def restore_from(path: Path) -> dict[str, str]:
    return {"execution__state_recovery__path": str(path)}


def goes_on_from(root: Path, newest: int) -> None:
    """The job, started without options, resumes where it was."""
    program = Program(root, bursts(100))
    program.run()
    assert program.history().recoveries()[-1].checkpoint == newest
    assert program.verdict().is_exactly_once, program.verdict()


# -- which snapshot is used ---------------------------------------------------------------------


def test_a_damaged_savepoint_costs_the_job_no_checkpoint(tmp_path: Path) -> None:
    newest, path = died(tmp_path)
    flip_a_byte(max(path.rglob("*.parquet"), key=lambda p: p.stat().st_size))
    attempts = Program(tmp_path).journal().attempts
    with pytest.raises(CorruptStateError, match="parquet"):
        Program(tmp_path, bursts(100), settings=restore_from(path)).run()
    # It is verified before the journal is written: a kill at any time would change nothing.
    assert Program(tmp_path).journal().attempts == attempts
    goes_on_from(tmp_path, newest)


def test_a_damaged_checkpoint_of_another_job_costs_the_job_no_checkpoint(tmp_path: Path) -> None:
    newest, _ = died(tmp_path)
    (tmp_path / "other").mkdir()
    theirs, _ = died(tmp_path / "other")
    other = Program(tmp_path / "other")
    flip_a_byte(max(local(other.dir.shared).rglob("*.*"), key=lambda p: p.stat().st_mtime_ns))
    settings = restore_from(local(other.dir.checkpoint_dir(theirs)))
    with pytest.raises(CorruptStateError):
        Program(tmp_path, bursts(100), settings=settings).run()
    goes_on_from(tmp_path, newest)


@pytest.mark.parametrize("way", ["savepoint", "fresh"])
def test_a_failed_start_costs_the_job_no_checkpoint(tmp_path: Path, way: str) -> None:
    newest, path = died(tmp_path)
    settings = restore_from(path) if way == "savepoint" else {"penstock__recovery__fresh": "true"}
    program = WithoutInput(tmp_path, settings=settings)
    with pytest.raises(FileNotFoundError):
        program.run()
    assert program.journal().restorable[-1].checkpoint == newest
    goes_on_from(tmp_path, newest)


def test_a_start_that_fails_after_commits_is_not_undone(tmp_path: Path) -> None:
    clock = ManualClock()
    script = [Burst(range(30)), Pause(10), Burst(range(30, 50)), Idle()]
    job = Program(tmp_path, script, interval="1 h", clock=clock).launch()
    wait_for_records(job, 30)
    checkpoint(job)
    clock.advance(10)
    wait_for_records(job, 50)
    # The last output is not committed: the savepoint holds it.
    path = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    die(job)
    arm(CrashPoint.RECOVERY_COMMITTED, action=full_disk)
    with pytest.raises(OSError, match="No space"):
        Program(tmp_path, bursts(100), settings=restore_from(path)).run()
    program = Program(tmp_path, bursts(100))
    assert program.journal().restorable == ()
    program.run()
    assert program.journal().attempts[-1].restored_path == str(path)


def test_a_start_that_fails_with_nothing_left_to_commit_is_undone(tmp_path: Path) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 50)
    path = Path(job.savepoint(str(tmp_path / "savepoints")).result(20))
    newest = checkpoint(job)
    eventually(lambda: newest in program.journal().commits_done)
    die(job)
    arm(CrashPoint.RECOVERY_COMMITTED, action=full_disk)
    with pytest.raises(OSError, match="No space"):
        Program(tmp_path, bursts(100), settings=restore_from(path)).run()
    goes_on_from(tmp_path, newest)


def test_a_finished_job_whose_next_start_fails_still_starts_from_the_beginning(
    tmp_path: Path,
) -> None:
    Program(tmp_path, bursts(20)).run()
    _, path = died(tmp_path)
    job = Program(tmp_path, idle_after(60)).launch()
    job.cancel()
    assert job.wait_for_end(20)
    with pytest.raises(FileNotFoundError):
        WithoutInput(tmp_path, settings=restore_from(path)).run()
    assert Program(tmp_path).journal().is_over
    program = Program(tmp_path, bursts(30), output="anew")
    program.run()
    assert program.verdict(30).is_exactly_once, program.verdict(30)


# -- errors -------------------------------------------------------------------------------------


def test_a_missing_input_does_not_make_a_checkpoint_bad(tmp_path: Path) -> None:
    newest, _ = died(tmp_path)
    with pytest.raises(FileNotFoundError, match="/data/orders"):
        WithoutInput(tmp_path).run()
    goes_on_from(tmp_path, newest)


def test_a_missing_state_file_makes_a_checkpoint_bad(tmp_path: Path) -> None:
    newest, path = died(tmp_path)
    removed = max(path.rglob("*.parquet"), key=lambda p: p.stat().st_size)
    removed.unlink()
    with pytest.raises(CorruptStateError, match=f"{removed.name}.*it is missing"):
        Program(tmp_path, settings=restore_from(path)).run()
    goes_on_from(tmp_path, newest)


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_space_for(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[bytes], bool]) -> None:
    """Let the disk be full for some journal entries."""
    create = LocalStorage.create

    def create_if_there_is_room(self: LocalStorage, path: str, data: bytes) -> None:
        if path.startswith("journal") and wanted(data):
            full_disk()
        create(self, path, data)

    monkeypatch.setattr(LocalStorage, "create", create_if_there_is_room)


def failing_once(tmp_path: Path, **settings: str) -> tuple[Program, LaunchedJob]:
    """A job that fails when its clock advances, after a checkpoint."""
    clock = ManualClock()
    script = [Burst(range(30)), Pause(10), Burst(range(30, 60)), Idle()]
    program = Program(tmp_path, script, fails=[40], clock=clock, interval="1 h", settings=settings)
    job = program.launch()
    wait_for_records(job, 30)
    checkpoint(job)
    return program, job


ONE_RESTART = {"restart_strategy__fixed_delay__attempts": "1"}


def test_a_full_journal_disk_is_the_reported_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, job = failing_once(tmp_path, **ONE_RESTART)
    no_space_for(monkeypatch, lambda _: True)
    assert program.clock is not None
    program.clock.advance(10)
    assert job.wait_for_end(20)
    with pytest.raises(OSError, match="No space"):
        job.raise_failure()


def test_the_end_of_a_job_that_could_not_restart_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, job = failing_once(tmp_path, **ONE_RESTART)
    no_space_for(monkeypatch, lambda data: b"AttemptStarted" in data)
    assert program.clock is not None
    program.clock.advance(10)
    assert job.wait_for_end(20)
    with pytest.raises(OSError, match="No space"):
        job.raise_failure()
    ended = program.journal().ended
    assert ended is not None
    assert (ended.attempt, ended.status) == ("a1", JobStatus.FAILED)


def test_a_cancellation_that_cannot_be_recorded_hides_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, job = failing_once(tmp_path, restart_strategy__fixed_delay__delay="1 h")
    no_space_for(monkeypatch, lambda data: b"JobEnded" in data)
    assert program.clock is not None
    program.clock.advance(10)
    eventually(lambda: job.status() is JobStatus.RESTARTING)
    job.cancel()
    assert job.wait_for_end(20)
    with pytest.raises(UserFunctionError):
        job.raise_failure()


# -- what is left behind ------------------------------------------------------------------------


class Counted(InlineSubmitter):
    """Records its calls."""

    def __init__(self, groups: tuple[PipelinedRegion, ...], tasks: dict[StageId, bytes]) -> None:
        super().__init__(groups, tasks)
        self.calls: list[str] = []

    def cancel(self) -> None:
        self.calls.append("cancel")

    def close(self) -> None:
        self.calls.append("close")


def test_a_failed_start_releases_everything(tmp_path: Path) -> None:
    made: list[Counted] = []

    def submitter(
        groups: tuple[PipelinedRegion, ...], name: str, tasks: dict[StageId, bytes], stay: bool
    ) -> Submitter:
        made.append(Counted(groups, tasks))
        return made[-1]

    def launcher(plan: Plan, configuration: Configuration, batch_mode: bool) -> LaunchedJob:
        return launch(plan, configuration, batch_mode, submitter)

    places = {
        "penstock__work_dir": str(tmp_path / "work"),
        "penstock__state__local_dir": str(tmp_path / "local"),
    }
    env = WithoutInput(tmp_path, settings=places).build()
    env._launcher = launcher
    with pytest.raises(FileNotFoundError):
        env.execute("count")
    assert [s.calls for s in made] == [["cancel", "close"]]
    assert [*tmp_path.glob("work/*"), *tmp_path.glob("local/*")] == []
    assert not local(Program(tmp_path).dir.driver).exists()


def test_a_start_that_loses_the_journal_leaves_the_winners_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The attempt number belongs to the winner, and so does the local directory.
    program = Program(
        tmp_path, bursts(20), settings={"penstock__state__local_dir": str(tmp_path / "local")}
    )
    program.run()
    (tmp_path / "local").mkdir(exist_ok=True)
    seen: list[Path] = []

    def lost(data: bytes) -> bool:
        (local,) = {Path(d) for d in msgspec.json.decode(data)["entry"]["work_dirs"][1:]}
        seen.append(local / "a2" / "store")
        seen[0].mkdir(parents=True)
        return True

    no_space_for(monkeypatch, lost)
    with pytest.raises(OSError, match="No space"):
        program.run()
    assert seen[0].exists()


# -- the end of a job ---------------------------------------------------------------------------


class FailsToClose(MapFunction[int, int], CheckpointListener):
    """Stays open after its last record, to be notified of the last checkpoint."""

    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        message = "the door is stuck"
        raise RuntimeError(message)


def test_a_function_that_fails_after_the_last_commit_does_not_fail_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path, interval="1 h")
    env = program.environment()
    source = ScriptedSource(bursts(30), Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    program.count(numbers.map(FailsToClose(), Types.LONG()))
    env.execute("count")
    assert program.verdict(30).is_exactly_once, program.verdict(30)
    assert program.history().recoveries() == []
    assert "the door is stuck" in caplog.text


# -- detection time -----------------------------------------------------------------------------


def dead_driver(job_dir: JobDir, beat: float) -> None:
    """Leave a lease as a killed driver would."""
    owner = Owner(socket.gethostname(), machine_id(), 2**22 + 1, 1, "a1", beat)
    job_dir.storage.replace(job_dir.driver.name, msgspec.json.encode(owner))


@pytest.mark.parametrize(("seen_before", "at_least", "at_most"), [(None, 100, 200), (3.0, 3, 60)])
def test_the_detection_time_starts_when_the_supervisor_saw_the_driver_die(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen_before: float | None,
    at_least: float,
    at_most: float,
) -> None:
    died(tmp_path)
    program = Program(tmp_path, bursts(60))
    dead_driver(program.dir, time.time() - 100)
    if seen_before is not None:
        monkeypatch.setattr("penstock.recovery.supervisor._died", time.time() - seen_before)
    program.run()
    recovery = program.history().recoveries()[-1]
    assert recovery.cause == "the driver died"
    assert at_least <= recovery.detect_s <= at_most


def test_a_driver_that_died_after_the_end_of_its_job_does_not_run_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, bursts(30))
    program.run()
    before = program.lines()
    with monkeypatch.context() as died:
        died.setattr("penstock.job.job_result.is_running_here", lambda *_: False)
        died.setattr("penstock.job.job_result._executions", Counter())
        program.run()
    assert program.lines() == before
    assert len(program.journal().attempts) == 1
    # The same process may run it twice.
    Program(tmp_path, bursts(30), output="again").run()
    assert len(program.journal().attempts) == 2


def test_a_driver_that_died_while_its_job_was_tidied_up_is_tidied_up_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, bursts(30))
    with monkeypatch.context() as died:
        died.setattr("penstock.job.job_store.JobStore.tidy", lambda *_: None)
        program.run()
    assert program.dir.checkpoints_on_disk()
    monkeypatch.setattr("penstock.job.job_result.is_running_here", lambda *_: False)
    monkeypatch.setattr("penstock.job.job_result._executions", Counter())
    program.run()
    assert not program.dir.checkpoints_on_disk()
    assert not program.journal().restorable
    assert len(program.journal().attempts) == 1


def test_a_driver_that_hangs_after_the_end_of_its_job_is_reported_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, bursts(30))
    program.run()
    # As if this process had been suspended before it released the lease.
    me = os.getpid()
    beat, started = time.time() - 1000, process_start_time(me) or 0
    owner = Owner(socket.gethostname(), machine_id(), me, started, "a1", beat)
    program.dir.storage.replace(program.dir.driver.name, msgspec.json.encode(owner))
    monkeypatch.setattr("penstock.job.job_result._executions", Counter())
    program.run()
    assert len(program.journal().attempts) == 1


def test_records_that_the_program_collects_are_collected_again_after_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were in the memory of the process that died."""
    monkeypatch.setattr("penstock.job.job_result.is_running_here", lambda *_: False)
    for _ in range(2):
        monkeypatch.setattr("penstock.job.job_result._executions", Counter())
        env = Program(tmp_path).environment()
        assert sorted(collected(env.from_collection([1, 2, 3]))) == [1, 2, 3]
