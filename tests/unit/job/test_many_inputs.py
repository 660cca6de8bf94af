"""Two sources of different pace into one keyed step: aligned, unaligned, at least once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.history import CheckpointRecord, RecordStatus
from penstock.checkpoint.story import StoryEvent
from penstock.common import Types, WatermarkStrategy
from penstock.common.memory_sizes import size
from penstock.datastream import DataStream
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.errors import ConfigurationError, RestoreMismatchError
from penstock.job.launch import LaunchedJob
from penstock.testing import Burst, Idle, Pause, ScriptedFailures, ScriptedSource
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
    """Counts with some thought, so that what comes quickly has to wait."""

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
    """Wait until the counting step has published so many records."""

    def counted_records() -> int:
        return sum(r.records_in for r in job.micro_batches() if "KEYED" in r.stage_name)

    eventually(lambda: counted_records() >= records)


@dataclass
class TwoSources(Program):
    """Even numbers come all at once, odd ones slowly; the step behind them is slower still."""

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

    def completed(self) -> list[CheckpointRecord]:
        return [c for c in self.history().checkpoints() if c.status is RecordStatus.COMPLETED]


def in_flight(record: CheckpointRecord) -> int:
    return sum(s.in_flight_bytes for o in record.operators for s in o.stats)


# -- exactly once -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{}, UNALIGNED, SWITCHING], ids=["aligned", "unaligned", "both"])
@pytest.mark.parametrize("fails", [(101,), (64, 151), (5, 37, 199)])
def test_no_mode_of_exactly_once_loses_or_doubles_a_record(
    tmp_path: Path, mode: dict[str, str], fails: tuple[int, ...]
) -> None:
    program = TwoSources(tmp_path, fails=fails, settings=mode)
    program.run()
    verdict = program.verdict(RECORDS)
    assert verdict.is_exactly_once, verdict


def test_a_barrier_overtakes_what_waits_and_the_checkpoint_holds_it(tmp_path: Path) -> None:
    program = TwoSources(tmp_path, settings=UNALIGNED, seconds=0.003)
    program.run()
    assert program.verdict(RECORDS).is_exactly_once
    holding = [c for c in program.completed() if in_flight(c)]
    assert holding, "no barrier had anything to overtake"


def backlog(tmp_path: Path, **settings: str) -> tuple[TwoSources, LaunchedJob]:
    """A job whose slow step has almost everything still before it."""
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


def test_a_story_tells_how_much_each_input_held(tmp_path: Path) -> None:
    program = TwoSources(
        tmp_path,
        even=[Burst(range(0, 8000, 2)), Idle()],
        odd=[*at_pace(range(1, 8000, 2), 10, 0.01), Idle()],
    )
    job = program.launch()
    eventually(lambda: any(c.bytes_held for c in program.completed()))
    die(job)
    for record in program.completed():
        told = [line.detail for line in record.story if line.event is StoryEvent.INPUT_HELD]
        channels = [c for operator in record.operators for c in operator.channels if c.bytes_held]
        assert told == [f"from {c.producer_name}: {size(c.bytes_held)}" for c in channels]


def test_what_was_in_flight_is_replayed_once(tmp_path: Path) -> None:
    program, job = backlog(tmp_path)
    number = checkpoint(job)
    die(job)
    record = program.history().checkpoint(number)
    assert record is not None
    assert in_flight(record) > 0
    again = TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED)
    again.run()
    assert again.verdict(RECORDS).is_exactly_once, again.verdict(RECORDS)


def test_a_checkpoint_before_the_replay_has_drained_holds_both(tmp_path: Path) -> None:
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


# -- refused ------------------------------------------------------------------------------------


def test_records_in_flight_go_back_to_as_many_subtasks_only(tmp_path: Path) -> None:
    program, job = backlog(tmp_path)
    checkpoint(job)
    die(job)
    again = TwoSources(tmp_path, even=program.even[:1], parallelism=3, settings=UNALIGNED)
    with pytest.raises(RestoreMismatchError, match=r"in flight .* savepoint"):
        again.run()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_of_records_in_flight_is_noticed_and_named(
    tmp_path: Path, damage: str
) -> None:
    program, job = backlog(tmp_path)
    number = checkpoint(job)
    die(job)
    file = next(f for f in sorted((program.dir.chk(number) / "in-flight").rglob("*.arrow")))
    match damage:
        case "flip":
            flip_a_byte(file)
        case "cut":
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
    """Odd numbers take so long on their way that the even ones' barrier comes long before."""

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
    """Return what comes out in the end."""
    job = LateBarrier(tmp_path, interval="1 h", settings=settings).launch()
    wait_for_records(job, 4)
    checkpoint(job)
    die(job)
    again = LateBarrier(tmp_path, settings=settings)
    again.run()
    return again.lines()


def test_at_least_once_counts_twice_what_came_behind_the_barrier_of_the_faster_input(
    tmp_path: Path,
) -> None:
    keys = Counter(
        line.split()[0] for line in run_and_die_behind_a_checkpoint(tmp_path, AT_LEAST_ONCE)
    )
    assert all(count >= RECORDS // KEYS for count in keys.values()), "something is lost"
    assert sum(keys.values()) > RECORDS, "nothing was held, and yet nothing counts twice"


def test_exactly_once_holds_the_faster_input_in_the_same_place(tmp_path: Path) -> None:
    lines = run_and_die_behind_a_checkpoint(tmp_path, {})
    assert sorted(lines) == sorted(counted(RECORDS))


def test_an_aborted_barrier_that_has_overtaken_does_no_harm(tmp_path: Path) -> None:
    program, job = backlog(
        tmp_path,
        execution__checkpointing__timeout="20 ms",
        execution__checkpointing__tolerable_failed_checkpoints="100",
    )
    with pytest.raises(Exception, match="longer than"):
        _ = [checkpoint(job) for _ in range(20)]
    eventually(lambda: not list(program.dir.path.glob("chk-*")))
    die(job)
    TwoSources(tmp_path, even=program.even[:1], odd=program.odd[:1], settings=UNALIGNED).run()
    assert program.verdict(RECORDS).is_exactly_once
