"""Jobs that fail and recover, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.history import CheckpointStatus, History
from penstock.checkpoint.storage.metadata import files_of
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common import Types, WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.connectors.discarding_sink import DiscardingSink
from penstock.crash_points import CrashPoint, arm, disarm
from penstock.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    MapFunction,
)
from penstock.datastream.state import ListState, ListStateDescriptor
from penstock.errors import BadCheckpointError, UserFunctionError
from penstock.testing import Burst, Idle, ManualClock, Pause, ScriptedFailures, ScriptedSource
from tests.local_paths import local
from tests.unit.job.counting import (
    Program,
    bursts,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    idle_after,
    launched,
    wait_for_lines,
    wait_for_records,
)
from tests.unit.support import eventually


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    disarm()
    for job in launched:
        job.kill()
    launched.clear()


BACKENDS = ["memory", "hashmap", "rocksdb"]


# -- restarts in one process --------------------------------------------------------------------


def in_three_parts(tmp_path: Path, **settings: str) -> tuple[Program, ManualClock]:
    """Fails twice, each time after a checkpoint with a third of the records."""
    clock = ManualClock()
    parts = [Burst(range(30)), Pause(10), Burst(range(30, 60)), Pause(10), Burst(range(60, 100))]
    return Program(tmp_path, parts, fails=[31, 62], clock=clock, settings=settings), clock


def run_in_three_parts(program: Program, clock: ManualClock) -> None:
    job = program.launch()
    wait_for_lines(program, 30)
    while not job.wait_for_end(0.02):
        clock.advance(10)
    job.raise_failure()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failing_function_neither_loses_nor_duplicates_a_record(
    tmp_path: Path, backend: str
) -> None:
    program, clock = in_three_parts(tmp_path, state__backend__type=backend)
    run_in_three_parts(program, clock)
    assert program.verdict().is_exactly_once, program.verdict()
    recoveries = program.history().recoveries()
    assert len(recoveries) == 2
    assert all(r.checkpoint is not None for r in recoveries)


def test_checkpoints_in_memory_survive_restarts_in_the_same_driver(tmp_path: Path) -> None:
    program, clock = in_three_parts(tmp_path)
    program.directory = None
    run_in_three_parts(program, clock)
    assert program.verdict().is_exactly_once, program.verdict()
    assert not (tmp_path / "checkpoints").exists()


def test_a_failure_before_the_first_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    program = Program(tmp_path, fails=[30, 90], interval="1 h")
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()
    assert [r.checkpoint for r in program.history().recoveries()] == [None, None]


def test_two_sources_of_different_speed_stay_exactly_once(tmp_path: Path) -> None:
    program = Program(tmp_path, fails=[40, 80])
    env = program.environment()
    none = WatermarkStrategy.no_watermarks()
    slow = ScriptedSource(bursts(30, size=1, pause=0.01), Types.LONG())
    fast = ScriptedSource([Burst(range(30, 60)), Pause(0.05), Burst(range(60, 150))], Types.LONG())
    first = env.from_source(slow, none, "slow").uid("slow")
    program.count(first.union(env.from_source(fast, none, "fast").uid("fast")))
    env.execute("count")
    assert program.verdict(150).is_exactly_once, program.verdict(150)


class InFives(FlatMapFunction[int, str], CheckpointedFunction):
    """Buffers records in a field until there are five."""

    state: ListState[int]

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("buffered", Types.LONG()))
        self.buffered = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.buffered)

    def flat_map(self, value: int) -> Iterable[str]:
        self.buffered.append(value)
        if len(self.buffered) == 5:
            yield from map(str, self.buffered)
            self.buffered.clear()


def test_a_buffer_of_a_checkpointed_function_survives(tmp_path: Path) -> None:
    program = Program(tmp_path, parallelism=1)
    env = program.environment()
    source = ScriptedSource(bursts(105, size=3), Types.LONG())
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .map(ScriptedFailures(tmp_path, [20, 70]), Types.LONG())
        .flat_map(InFives(), Types.STRING())
        .sink_to(program.sink())
    )
    env.execute("buffer")
    assert sorted(map(int, program.lines())) == list(range(105))


class Listens(MapFunction[int, int], CheckpointListener):
    def __init__(self, notified: Path) -> None:
        self._notified = notified

    def map(self, value: int) -> int:
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        with self._notified.open("a") as file:
            file.write(f"{checkpoint_id}\n")


def test_checkpoint_listeners_are_notified_of_every_checkpoint_to_the_last(tmp_path: Path) -> None:
    program, notified = Program(tmp_path, parallelism=1), tmp_path / "notified"
    env = program.environment()
    source = ScriptedSource(bursts(60), Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(Listens(notified), Types.LONG()).sink_to(DiscardingSink())
    env.execute("listening")
    records = program.history().checkpoints()
    assert [int(line) for line in notified.read_text().split()] == [r.id for r in records]
    assert records[-1].kind == "final"


def test_at_most_once_may_lose_and_never_duplicates(tmp_path: Path) -> None:
    program = Program(tmp_path, settings={"execution__checkpointing__mode": "AT_MOST_ONCE"})
    env = program.environment()
    source = ScriptedSource(bursts(100), Types.LONG())
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .map(ScriptedFailures(tmp_path, [30, 60]), Types.LONG())
        .map(str, Types.STRING())
        .sink_to(program.sink())
    )
    env.execute("at most once")
    assert len(program.history().recoveries()) == 2
    lines = Counter(program.lines())
    assert max(lines.values()) == 1
    assert 0 < len(lines) < 100


# -- a driver that died -------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_whose_driver_died_resumes_from_its_newest_checkpoint(
    tmp_path: Path, backend: str
) -> None:
    settings = {"state__backend__type": backend}
    job = Program(tmp_path, idle_after(60), settings=settings).launch()
    program = Program(tmp_path, bursts(100), settings=settings)
    wait_for_lines(program, 30)
    die(job)
    newest = program.journal().restorable[-1].checkpoint
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()
    assert program.history().recoveries()[0].checkpoint == newest


def test_a_driver_that_dies_repeatedly_loses_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, bursts(100))
    for records in (25, 60):
        job = Program(tmp_path, idle_after(records)).launch()
        wait_for_lines(program, records - 10)
        die(job)
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()


def test_a_driver_that_dies_before_the_first_checkpoint_starts_from_the_beginning(
    tmp_path: Path,
) -> None:
    job = Program(tmp_path, idle_after(20), interval="1 h").launch()
    wait_for_records(job, 20)
    die(job)
    program = Program(tmp_path)
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()


def test_a_fresh_start_restores_nothing_and_deletes_nothing(tmp_path: Path) -> None:
    old = Program(tmp_path, idle_after(50))
    job = old.launch()
    wait_for_lines(old, 50)
    die(job)
    kept = old.journal().restorable[-1]
    program = Program(
        tmp_path, bursts(40), output="new", settings={"penstock__recovery__fresh": "true"}
    )
    before = len(old.lines())
    program.run()
    assert program.verdict(40).is_exactly_once, program.verdict(40)
    assert len(old.lines()) == before
    assert kept.checkpoint not in [c.checkpoint for c in program.journal().restorable]
    # It still exists when the fresh job has finished and cleaned up.
    metadata = old.dir.metadata(kept.checkpoint)
    buffered = files_of(decode_metadata(local(metadata).read_bytes(), str(metadata)))
    assert buffered
    assert all(local(old.dir.shared / name).exists() for name in buffered)


def test_a_job_resumes_from_its_moved_directory(tmp_path: Path) -> None:
    old = Program(tmp_path, idle_after(50))
    job = old.launch()
    wait_for_lines(old, 50)
    die(job)
    (tmp_path / "checkpoints").rename(tmp_path / "moved")
    program = Program(tmp_path, bursts(100), directory="moved")
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()
    assert program.journal().attempts[-1].restored is not None


def test_checkpoints_of_an_ended_lineage_are_removed_by_the_next_start_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, bursts(30))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.job.job_store.JobStore.tidy", lambda *_: None)
        program.run()
    assert program.dir.checkpoints_on_disk()
    kept = program.dir.connectors("a1")
    local(kept).mkdir(parents=True, exist_ok=True)
    Program(tmp_path, bursts(30), output="again").run()
    assert program.dir.checkpoints_on_disk() == []
    assert not local(kept).exists()


def test_a_finished_job_starts_from_the_beginning(tmp_path: Path) -> None:
    for output in ("first", "second"):
        program = Program(tmp_path, bursts(30), output=output)
        program.run()
        assert program.verdict(30).is_exactly_once
        ended = program.journal().ended
        assert ended is not None
        assert ended.status is JobStatus.FINISHED


def test_a_finished_at_most_once_job_starts_from_the_beginning(tmp_path: Path) -> None:
    settings = {"execution__checkpointing__mode": "AT_MOST_ONCE"}
    for output in ("first", "second"):
        program = Program(tmp_path, bursts(30), output=output, settings=settings)
        program.run()
        assert program.verdict(30).is_exactly_once


def test_an_at_most_once_job_whose_driver_died_repeats_nothing(tmp_path: Path) -> None:
    settings = {"execution__checkpointing__mode": "AT_MOST_ONCE"}
    old = Program(tmp_path, idle_after(50), settings=settings)
    job = old.launch()
    wait_for_lines(old, 30)
    die(job)
    program = Program(tmp_path, bursts(100), settings=settings)
    program.run()
    lines = Counter(program.lines())
    assert max(lines.values()) == 1
    assert set(lines) <= set(counted(100))


def test_a_finished_job_leaves_no_checkpoints_behind(tmp_path: Path) -> None:
    program = Program(tmp_path, bursts(30))
    program.run()
    assert program.dir.checkpoints_on_disk() == []
    assert not local(program.dir.shared).exists()
    assert not local(program.dir.path / "connectors").exists()
    assert program.journal().completed == ()


def test_the_end_is_recorded_before_checkpoints_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A driver killed during cleanup must not look like one without a checkpoint to resume from.
    program = Program(tmp_path, bursts(20), interval="1 h")
    seen = []

    def full(*_: object) -> None:
        seen.append(program.journal().ended)
        message = "the disk is gone"
        raise OSError(message)

    monkeypatch.setattr("penstock.job.job_store.JobStore.tidy", full)
    program.run()
    assert [ended and ended.status for ended in seen] == [JobStatus.FINISHED]


# -- damage -------------------------------------------------------------------------------------


def two_checkpoints(program: Program, *, data_between: bool) -> list[int]:
    """Take two checkpoints, the second with or without new output, then die."""
    clock = program.clock = ManualClock()
    program.script = [Burst(range(30)), Pause(10), Burst(range(30, 60)), Idle()]
    program.interval = "1 h"
    program.settings["execution__checkpointing__num_retained"] = "2"
    job = program.launch()
    wait_for_records(job, 30)
    taken_ids = [checkpoint(job)]
    eventually(lambda: taken_ids[0] in program.journal().commits_done)
    if data_between:
        clock.advance(10)
        wait_for_records(job, 60)
    taken_ids.append(checkpoint(job))
    if data_between:
        eventually(lambda: taken_ids[1] in program.journal().commits_done)
    die(job)
    return taken_ids


def again(program: Program, **settings: str) -> Program:
    merged = {**program.settings, **settings}
    return Program(program.root, bursts(100), settings=merged)


def test_a_job_falls_back_from_a_damaged_checkpoint_if_none_of_it_was_committed(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    first, second = two_checkpoints(program, data_between=False)
    flip_a_byte(local(program.dir.metadata(second)))
    after = again(program)
    after.run()
    assert after.verdict().is_exactly_once, after.verdict()
    assert after.history().recoveries()[0].checkpoint == first


def test_a_damaged_checkpoint_whose_output_is_committed_is_rejected(tmp_path: Path) -> None:
    program = Program(tmp_path)
    first, second = two_checkpoints(program, data_between=True)
    flip_a_byte(local(program.dir.metadata(second)))
    with pytest.raises(BadCheckpointError) as refused:
        again(program).run()
    assert (refused.value.checkpoint, refused.value.older) == (second, first)
    after = again(program, penstock__recovery__accept_duplicates="true")
    after.run()
    verdict = after.verdict()
    assert verdict.is_at_least_once
    assert len(verdict.duplicated) == 30


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_damaged_state_file_is_found_before_it_is_used(tmp_path: Path, backend: str) -> None:
    program = Program(tmp_path, parallelism=1, settings={"state__backend__type": backend})
    two_checkpoints(program, data_between=True)
    files = [p for p in local(program.dir.shared).rglob("*") if p.is_file()]
    newest = max(files, key=lambda p: p.stat().st_mtime_ns)
    flip_a_byte(newest)
    with pytest.raises(BadCheckpointError, match=newest.name):
        again(program).run()


def test_a_job_that_fell_back_keeps_the_files_it_fell_back_to(tmp_path: Path) -> None:
    program = Program(tmp_path, parallelism=1)
    first, second = two_checkpoints(program, data_between=False)
    flip_a_byte(local(program.dir.metadata(second)))
    # Many micro-batches with compactions, and no checkpoint: state files come and go.
    busy = Program(
        tmp_path,
        [
            Burst(range(30)),
            *[s for n in range(30, 90, 2) for s in (Burst([n, n + 1]), Pause(0.002))],
            Idle(),
        ],
        parallelism=1,
        interval="1 h",
        settings={"penstock__state__compact_after_deltas": "2"},
    )
    job = busy.launch()
    wait_for_records(job, 60)
    die(job)
    after = again(program)
    after.run()
    assert after.verdict().is_exactly_once, after.verdict()
    assert [r.checkpoint for r in after.history().recoveries()] == [first, first]


def test_a_checkpoint_found_bad_by_a_restart_ends_the_job(tmp_path: Path) -> None:
    program = Program(tmp_path, [Burst(range(30)), Idle()], interval="1 h", clock=ManualClock())
    program.script = [Burst(range(30)), Pause(10), Burst(range(30, 60)), Idle()]
    program.fails = [40]
    job = program.launch()
    wait_for_records(job, 30)
    n = checkpoint(job)
    eventually(lambda: n in program.journal().commits_done)
    flip_a_byte(local(program.dir.metadata(n)))
    assert program.clock is not None
    program.clock.advance(10)
    assert job.wait_for_end(20)
    with pytest.raises(BadCheckpointError):
        job.raise_failure()


def test_a_failed_job_resumes_when_it_is_started_again(tmp_path: Path) -> None:
    settings = {"restart_strategy__type": "none"}
    program = Program(tmp_path, fails=[70], settings=settings)
    with pytest.raises(UserFunctionError):
        program.run()
    ended = program.journal().ended
    assert ended is not None
    assert ended.status is JobStatus.FAILED
    program.run()
    assert program.verdict().is_exactly_once, program.verdict()


# -- savepoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drain", [False, True])
def test_a_driver_that_dies_after_a_stop_does_not_emit_committed_output_again(
    tmp_path: Path, drain: bool
) -> None:
    program = Program(tmp_path, idle_after(50), interval="1 h")
    job = program.launch()
    wait_for_records(job, 20)
    checkpoint(job)
    wait_for_records(job, 50)

    def dies() -> Any:
        raise SystemExit

    arm(CrashPoint.JOB_FINISHING, action=dies)
    job.stop(str(tmp_path / "savepoints"), drain=drain).result(20)
    assert job.wait_for_end(20)
    disarm()
    after = Program(tmp_path, bursts(100))
    after.run()
    assert after.verdict().is_exactly_once, after.verdict()


# -- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("incremental", ["true", "false"])
def test_an_idle_operator_keeps_the_sst_files_of_its_state(
    tmp_path: Path, incremental: str
) -> None:
    script = [step for n in range(0, 40, 5) for step in (Burst(range(n, n + 5)), Pause(0.15))]
    program = Program(
        tmp_path,
        script,
        settings={
            "state__backend__type": "rocksdb",
            "execution__checkpointing__incremental": incremental,
        },
    )
    program.run()
    assert program.verdict(40).is_exactly_once, program.verdict(40)
    records = History(program.dir.storage).checkpoints()
    assert [r.failure for r in records if r.status is CheckpointStatus.FAILED] == []
