"""Two sources of different speed into one keyed step: aligned, unaligned, at least once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus
from penstock.common import Types, WatermarkStrategy
from penstock.common.text.memory_sizes import size
from penstock.datastream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import ConfigurationError, RestoreMismatchError
from penstock.job.launched_job import LaunchedJob
from penstock.testing import Burst, Idle, Pause, ScriptedFailures, ScriptedSource
from tests.local_paths import local
from tests.unit.job.counting import (
    KEYS,
    Count,
    Program,
    checkpoint,
    counted,
    die,
    flip_a_byte,
    launched,
)
from tests.unit.support import eventually

UNALIGNED = {"execution__checkpointing__unaligned__enabled": "true"}
SWITCHING = {**UNALIGNED, "execution__checkpointing__aligned_checkpoint_timeout": "30 ms"}
AT_LEAST_ONCE = {"execution__checkpointing__mode": "AT_LEAST_ONCE"}
RECORDS = 240


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterable[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


class SlowCount(Count):
    """Counts slowly, so that fast input has to wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process_element(self, value: int, ctx: Any) -> Iterable[str]:
        time.sleep(self._seconds)
        yield from super().process_element(value, ctx)


def at_pace(numbers: Sequence[int], size: int, pause: float) -> list[Any]:
    script: list[Any] = []
    for start in range(0, len(numbers), size):
        script += [Burst(numbers[start : start + size]), Pause(pause)]
    return script


def wait_for_records(job: LaunchedJob, records: int) -> None:
    """Wait until the counting step has published this many records."""

    def counted_records() -> int:
        return sum(r.records_in for r in job.micro_batches() if "KEYED" in r.stage_name)

    eventually(lambda: counted_records() >= records)


@dataclass
class TwoSources(Program):
    """Even numbers arrive at once, odd ones slowly; the downstream step is slower still."""

    even: Sequence[Any] = field(default_factory=lambda: [Burst(range(0, RECORDS, 2))])
    odd: Sequence[Any] = field(default_factory=lambda: at_pace(range(1, RECORDS, 2), 10, 0.01))
    seconds: float = 0.001

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        even = self._source(env, "even", self.even)
        odd = self._source(env, "odd", self.odd)
        self.count(even.union(odd))
        return env

    def _source(
        self, env: StreamExecutionEnvironment, name: str, script: Sequence[Any]
    ) -> DataStream:
        source = ScriptedSource(script, Types.LONG(), self.clock)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), name).uid(name)
        return numbers.map(ScriptedFailures(self.root, self.fails), Types.LONG()).uid(f"{name}-map")

    def count(self, numbers: DataStream) -> None:
        (
            numbers.key_by(lambda n: n % KEYS, Types.LONG())
            .process(SlowCount(self.seconds))
            .uid(self.uid)
            .sink_to(self.sink())
            .uid("files")
        )

    def completed(self) -> list[CheckpointStats]:
        return [c for c in self.history().checkpoints() if c.status is CheckpointStatus.COMPLETED]


def in_flight(record: CheckpointStats) -> int:
    return sum(s.in_flight_bytes for o in record.operators for s in o.stats)


# -- exactly once -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{}, UNALIGNED, SWITCHING], ids=["aligned", "unaligned", "both"])
@pytest.mark.parametrize("fails", [(101,), (64, 151), (5, 37, 199)])
def test_no_mode_of_exactly_once_loses_or_duplicates_a_record(
    tmp_path: Path, mode: dict[str, str], fails: tuple[int, ...]
) -> None:
    program = TwoSources(tmp_path, fails=fails, settings=mode)
    program.run()
    verdict = program.verdict(RECORDS)
    assert verdict.is_exactly_once, verdict


def test_a_barrier_overtakes_waiting_records_and_the_checkpoint_holds_them(tmp_path: Path) -> None:
    program = TwoSources(tmp_path, settings=UNALIGNED, seconds=0.003)
    program.run()
    assert program.verdict(RECORDS).is_exactly_once
    holding = [c for c in program.completed() if in_flight(c)]
    assert holding, "no barrier had anything to overtake"


def backlog(tmp_path: Path, **settings: str) -> tuple[TwoSources, LaunchedJob]:
    """A job with almost all records waiting before its slow step."""
    program = TwoSources(
        tmp_path,
        even=[Burst(range(0, RECORDS, 2)), Idle()],
        odd=[Burst(range(1, RECORDS, 2)), Idle()],
        interval="1 h",
        seconds=0.005,
        settings={**UNALIGNED, **settings},
    )
    job = program.launch()
    wait_for_records(job, 1)
    return program, job


def test_the_event_log_shows_how_much_was_blocked_in_each_input(tmp_path: Path) -> None:
    # Even numbers keep coming after a barrier while the odd ones before it are processed.
    program = LateBarrier(
        tmp_path,
        even=[*at_pace(range(0, 8000, 2), 10, 0.01), Idle()],
        odd=[*at_pace(range(1, 8000, 2), 10, 0.01), Idle()],
    )
    job = program.launch()
    eventually(lambda: any(c.blocked_bytes for c in program.completed()))
    die(job)
    for record in program.completed():
        details = [
            line.detail for line in record.events if line.event is CheckpointEvent.INPUT_BLOCKED
        ]
        channels = [
            c for operator in record.operators for c in operator.channels if c.blocked_bytes
        ]
        assert details == [f"from {c.producer_name}: {size(c.blocked_bytes)}" for c in channels]


def test_in_flight_data_is_replayed_once(tmp_path: Path) -> None:
    program, job = backlog(tmp_path)
    number = checkpoint(job)
    die(job)
    record = program.history().checkpoint(number)
    assert record is not None
    assert in_flight(record) > 0
    again = TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED)
    again.run()
    assert again.verdict(RECORDS).is_exactly_once, again.verdict(RECORDS)


def test_a_checkpoint_before_the_replay_has_drained_holds_old_and_new_in_flight_data(
    tmp_path: Path,
) -> None:
    program, job = backlog(tmp_path)
    checkpoint(job)
    die(job)
    second = program.launch()
    number = checkpoint(second)
    die(second)
    record = program.history().checkpoint(number)
    assert record is not None
    assert in_flight(record) > 0
    again = TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED)
    again.run()
    assert again.verdict(RECORDS).is_exactly_once, again.verdict(RECORDS)


def test_a_savepoint_under_a_backlog_aligns_and_may_be_rescaled(tmp_path: Path) -> None:
    program, job = backlog(tmp_path)
    checkpoint(job)
    path = job.savepoint(str(tmp_path / "savepoints")).result(30)
    die(job)
    again = TwoSources(
        tmp_path,
        even=program.even[:1],
        odd=program.odd[:1],
        parallelism=3,
        settings={**UNALIGNED, "execution__state_recovery__path": path},
    )
    again.run()
    assert again.verdict(RECORDS).is_exactly_once, again.verdict(RECORDS)


# -- rejected -----------------------------------------------------------------------------------


def test_in_flight_data_restores_only_at_the_same_parallelism(tmp_path: Path) -> None:
    program, job = backlog(tmp_path)
    checkpoint(job)
    die(job)
    again = TwoSources(tmp_path, even=program.even[:1], parallelism=3, settings=UNALIGNED)
    with pytest.raises(RestoreMismatchError, match=r"in flight .* savepoint"):
        again.run()


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_file_of_in_flight_data_is_detected_and_named(
    tmp_path: Path, damage: str
) -> None:
    program, job = backlog(tmp_path)
    number = checkpoint(job)
    die(job)
    file = next(
        f for f in sorted(local(program.dir.checkpoint_dir(number) / "in-flight").rglob("*.arrow"))
    )
    match damage:
        case "flip":
            flip_a_byte(file)
        case "truncate":
            file.write_bytes(file.read_bytes()[:-3])
        case "remove":
            file.unlink()
    with pytest.raises(Exception, match=file.name):
        TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED).run()


def test_unaligned_needs_exactly_once_and_one_checkpoint_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="EXACTLY_ONCE"):
        TwoSources(tmp_path, settings={**UNALIGNED, **AT_LEAST_ONCE}).run()
    several = {"execution__checkpointing__max_concurrent_checkpoints": "2"}
    with pytest.raises(ConfigurationError, match="max-concurrent"):
        TwoSources(tmp_path, settings={**UNALIGNED, **several}).run()


# -- at least once ------------------------------------------------------------------------------


def test_at_least_once_counts_once_as_long_as_nothing_fails(tmp_path: Path) -> None:
    program = TwoSources(tmp_path, settings=AT_LEAST_ONCE)
    program.run()
    assert program.verdict(RECORDS).is_exactly_once


@dataclass
class LateBarrier(TwoSources):
    """Odd numbers are delayed so much that the even ones' barrier arrives long before."""

    even: Sequence[Any] = field(default_factory=lambda: at_pace(range(0, RECORDS, 2), 4, 0.01))
    odd: Sequence[Any] = field(default_factory=lambda: [Burst(range(1, RECORDS, 2))])
    seconds: float = 0.0

    def _source(
        self, env: StreamExecutionEnvironment, name: str, script: Sequence[Any]
    ) -> DataStream:
        numbers = super()._source(env, name, script)
        return numbers if name == "even" else numbers.map(slowly, Types.LONG()).uid("slowly")


def slowly(number: int) -> int:
    time.sleep(0.02)
    return number


def run_and_die_behind_a_checkpoint(tmp_path: Path, settings: dict[str, str]) -> list[str]:
    """Return the final output."""
    job = LateBarrier(tmp_path, interval="1 h", settings=settings).launch()
    wait_for_records(job, 4)
    checkpoint(job)
    die(job)
    again = LateBarrier(tmp_path, settings=settings)
    again.run()
    return again.lines()


def test_at_least_once_counts_records_after_the_barrier_of_the_faster_input_twice(
    tmp_path: Path,
) -> None:
    keys = Counter(
        line.split()[0] for line in run_and_die_behind_a_checkpoint(tmp_path, AT_LEAST_ONCE)
    )
    assert all(count >= RECORDS // KEYS for count in keys.values()), "something is lost"
    assert sum(keys.values()) > RECORDS, "no input was blocked, and yet nothing counts twice"


def test_exactly_once_blocks_the_faster_input_in_the_same_place(tmp_path: Path) -> None:
    lines = run_and_die_behind_a_checkpoint(tmp_path, {})
    assert sorted(lines) == sorted(counted(RECORDS))


def test_an_aborted_unaligned_barrier_does_no_harm(tmp_path: Path) -> None:
    program, job = backlog(
        tmp_path,
        execution__checkpointing__timeout="20 ms",
        execution__checkpointing__tolerable_failed_checkpoints="100",
    )
    with pytest.raises(Exception, match="longer than"):
        _ = [checkpoint(job) for _ in range(20)]
    eventually(lambda: not list(local(program.dir.path).glob("chk-*")))
    die(job)
    TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED).run()
    assert program.verdict(RECORDS).is_exactly_once
