"""Event time and timers in whole programs, without Spark."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import Duration, Encoder, Types, WatermarkStrategy
from penstock.common.event_time import MAX_WATERMARK, MIN_WATERMARK, NO_TIMESTAMP
from penstock.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.functions import KeyedCoProcessFunction
from penstock.errors import PenstockError, StepError, UserFunctionError
from penstock.job.launched_job import LaunchedJob
from penstock.task import subtask
from penstock.task.messages import Instruction
from penstock.testing import (
    Burst,
    Idle,
    Pause,
    ScriptedFailures,
    ScriptedSource,
    read_lines,
)
from tests.unit.support import WatchedSubmitter, collected, environment, eventually

Event = tuple[str, int]


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


ASCENDING = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())


def bursts(*parts: Iterable[Event], last: Any = None) -> list[Any]:
    script: list[Any] = []
    for part in parts:
        script += [Burst(list(part)), Pause(0.03)]
    return script + ([] if last is None else [last])


def events(
    env: StreamExecutionEnvironment, script: Any, strategy: WatermarkStrategy = ASCENDING
) -> DataStream:
    return env.from_source(ScriptedSource(script), strategy, "events")


class Seen(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value[0], ctx.timestamp(), ctx.timer_service().current_watermark()


class Timed(KeyedProcessFunction[str, Event, Any]):
    """Sets a timer ten behind each record, and tells of all it sees."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        service = ctx.timer_service()
        service.register_event_time_timer(value[1] + 10)
        yield "record", value, service.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "timer", ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def first(value: Any) -> Any:
    return value[0]


def test_the_watermark_moves_between_micro_batches_and_ends_at_the_last_one() -> None:
    env = environment()
    seen = collected(events(env, bursts([("a", 5), ("b", 3)], [("c", 9)])).process(Seen()))
    assert seen == [("a", 5, MIN_WATERMARK), ("b", 3, MIN_WATERMARK), ("c", 9, 4)]


def test_out_of_orderness_holds_the_watermark_back() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(3)
    ).with_timestamp_assigner(Second())
    seen = collected(
        events(environment(), bursts([("a", 5)], [("b", 6)]), strategy).process(Seen())
    )
    assert seen[1] == ("b", 6, 1)


def test_a_stream_without_a_strategy_has_no_time() -> None:
    source = ScriptedSource(bursts([("a", 5)], [("b", 6)]))
    stream = environment().from_source(source, WatermarkStrategy.no_watermarks(), "events")
    assert collected(stream.process(Seen())) == [
        ("a", NO_TIMESTAMP, MIN_WATERMARK),
        ("b", NO_TIMESTAMP, MIN_WATERMARK),
    ]


def test_time_given_in_one_branch_is_not_seen_in_the_other() -> None:
    env = environment()
    plain = env.from_collection([("a", 5)])
    timed = plain.assign_timestamps_and_watermarks(ASCENDING).process(Seen())
    seen = collected(timed.union(plain.process(Seen())))
    assert sorted(seen) == [("a", NO_TIMESTAMP, MIN_WATERMARK), ("a", 5, MIN_WATERMARK)]


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_timers_fire_with_the_watermark_in_the_order_of_their_times(
    backend: str, exchange: str
) -> None:
    env = environment(state__backend__type=backend, penstock__exchange=exchange)
    script = bursts([("a", 1), ("b", 2), ("a", 3)], [("a", 30)], [("b", 31)])
    seen = collected(events(env, script).key_by(first, Types.STRING()).process(Timed()))
    timers = [s for s in seen if s[0] == "timer"]
    assert [t[1:3] for t in timers] == [("a", 11), ("b", 12), ("a", 13), ("a", 40), ("b", 41)]
    assert [t[3] for t in timers[3:]] == [MAX_WATERMARK] * 2
    assert all(t[2] <= t[3] for t in timers)
    # A record is processed at the watermark that fired timers before it, or an earlier one.
    for at, (what, *_, watermark) in enumerate(seen):
        if what == "record":
            assert watermark >= max((t[3] for t in seen[:at] if t[0] == "timer"), default=watermark)


def test_timestamps_go_through_a_shuffle_with_their_records() -> None:
    env = environment(parallelism=2)
    stream = events(env, bursts([(str(n % 7), n) for n in range(100)]))

    class Stamped(KeyedProcessFunction[str, Event, Any]):
        def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
            yield value[0], value[1], ctx.timestamp()

    seen = collected(stream.rebalance().map(lambda v: v).key_by(first).process(Stamped()))
    assert len(seen) == 100
    assert all(value == stamp for _, value, stamp in seen)


class Waits(KeyedCoProcessFunction[str, Event, Event, Any]):
    """Sets a timer with each record of the first stream."""

    def process_element1(self, value: Event, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(value[1])
        yield from ()

    def process_element2(self, value: Event, ctx: Any) -> Iterable[Any]:
        yield "other", value[1], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "timer", timestamp, ctx.timer_service().current_watermark()


def test_the_slower_of_two_streams_says_how_late_it_is() -> None:
    env = environment()
    fast = events(env, bursts([("k", 5)], [("k", 100)]))
    slow = events(env, [Burst([("k", 1)]), Pause(0.2), Burst([("k", 20)]), Pause(0.2)])
    both = fast.key_by(first).connect(slow.key_by(first))
    seen = collected(both.process(Waits()))
    timers = [s for s in seen if s[0] == "timer"]
    assert timers[0][1] == 5
    assert timers[0][2] == 19
    assert timers[1] == ("timer", 100, MAX_WATERMARK)


def test_a_silent_stream_is_left_out_when_its_strategy_says_so() -> None:
    env = environment()
    fast = events(env, bursts([("k", 5)], [("k", 100)], last=Idle()))
    idle = ASCENDING.with_idleness(Duration.of_millis(50))
    silent = events(env, [Burst([("k", 1)]), Idle()], idle)
    both = fast.key_by(first).connect(silent.key_by(first))
    with both.process(Waits()).execute_and_collect() as records:
        found = [r for r in (next(records), next(records)) if r[0] == "timer"]
    assert found == [("timer", 5, 99)]


class Clocked(KeyedProcessFunction[str, Event, Any]):
    """Sets a processing-time timer as far ahead as the record says."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        service = ctx.timer_service()
        at = service.current_processing_time() + value[1]
        service.register_processing_time_timer(at)
        service.register_processing_time_timer(at)
        service.register_processing_time_timer(at + 1)
        service.delete_processing_time_timer(at + 1)
        yield "record", at

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        late = ctx.timer_service().current_processing_time() - timestamp
        yield ctx.time_domain().name, ctx.get_current_key(), timestamp, late


def test_an_idle_job_with_a_timer_ahead_runs_no_micro_batch_until_it_is_due() -> None:
    ahead = (900, 4_000, 15_000)
    assert any(map(_is_idle_until_due, ahead)), "the machine is too slow for this test"


def _is_idle_until_due(ahead_ms: int) -> bool:
    """See that it is so; false if the timer was due before the job had come to rest."""
    watched = WatchedSubmitter()
    env = watched.watch(environment())
    source = ScriptedSource([Burst([("a", ahead_ms)]), Idle()])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    with stream.key_by(first).process(Clocked()).execute_and_collect() as records:
        what, at = next(records)
        assert what == "record"
        _settle(watched)
        ran = len(watched.instructions)
        if time.time() * 1000 >= at:
            return False
        domain, key, fired, late = next(records)
        assert (domain, key, fired) == ("PROCESSING_TIME", "a", at)
        assert late >= 0
        _settle(watched)
        # The one that fired, and the one behind it that took what it emitted.
        assert len(watched.instructions) <= ran + 2
    return True


def _settle(watched: WatchedSubmitter) -> None:
    """Wait until no micro-batch has run for a while."""
    seen = -1
    while seen != len(watched.instructions):
        seen = len(watched.instructions)
        time.sleep(0.15)


class Tells(KeyedProcessFunction[str, Event, Any]):
    """Tells what time its timer has, in both domains."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 1)
        service.register_event_time_timer(7)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        for _ in range(2):
            yield ctx.time_domain().name, ctx.timestamp() == timestamp


def test_what_a_processing_time_timer_emits_has_no_event_time() -> None:
    stream = events(environment(), [Burst([("a", 5)]), Pause(0.3)])
    seen = collected(stream.key_by(first).process(Tells()).process(Stamps()))
    assert sorted(seen) == [
        *[(("EVENT_TIME", True), 7)] * 2,
        *[(("PROCESSING_TIME", True), NO_TIMESTAMP)] * 2,
    ]


class Stamps(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, ctx.timestamp()


def test_processing_time_timers_that_are_not_due_at_the_end_do_not_fire() -> None:
    stream = environment().from_collection([("a", 100_000)])
    assert [s[0] for s in collected(stream.key_by(first).process(Clocked()))] == ["record"]


def test_in_batch_mode_all_time_passes_for_a_key_before_the_next() -> None:
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    stream = env.from_collection([("a", 9), ("b", 2), ("a", 3)])
    timed = stream.assign_timestamps_and_watermarks(ASCENDING).key_by(first).process(Timed())
    seen = [s[:3] if s[0] == "timer" else s[:2] for s in collected(timed)]
    of_a = [("record", ("a", 3)), ("record", ("a", 9)), ("timer", "a", 13), ("timer", "a", 19)]
    of_b = [("record", ("b", 2)), ("timer", "b", 12)]
    assert seen in (of_a + of_b, of_b + of_a)


class Marks(WatermarkGenerator):
    """Gives a watermark for records that say so."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event[0] == "mark":
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def test_a_generator_of_the_users_own_says_how_late_it_is() -> None:
    strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(Second())
    script = bursts([("a", 50)], [("mark", 7)], [("b", 8)])
    seen = collected(events(environment(), script, strategy).process(Seen()))
    assert [s[2] for s in seen] == [MIN_WATERMARK, MIN_WATERMARK, 7]


class Counts(WatermarkGenerator):
    """Gives the number of records it has seen."""

    made: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.seen = 0
        self.made.append(1)

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.seen)


class CountsInSlots(WatermarkGenerator):
    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1
        output.emit_watermark(self.seen)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class OtherWorkers(WatchedSubmitter):
    """Lets every micro-batch run where nothing is left of those before."""

    def before(self, instruction: Instruction) -> None:
        subtask._open_functions.clear()


def counted(kind: type[WatermarkGenerator]) -> WatermarkStrategy:
    return WatermarkStrategy.for_generator(kind).with_timestamp_assigner(Second())


ONE_BY_ONE = bursts([("a", 1)], [("b", 1)], [("c", 1)], [("d", 1)])


@pytest.mark.parametrize("kind", [Counts, CountsInSlots])
def test_a_generator_keeps_its_fields_in_every_worker(
    kind: type[WatermarkGenerator],
) -> None:
    env = OtherWorkers().watch(environment())
    seen = collected(events(env, ONE_BY_ONE, counted(kind)).process(Seen()))
    assert [s[2] for s in seen] == [MIN_WATERMARK, 1, 2, 3]


def test_a_generator_is_made_once_where_its_worker_keeps_up() -> None:
    Counts.made.clear()
    env = environment(pipeline__auto_watermark_interval="0 ms")
    seen = collected(events(env, ONE_BY_ONE, counted(Counts)).process(Seen()))
    assert [s[2] for s in seen] == [MIN_WATERMARK, 1, 2, 3]
    assert len(Counts.made) == 1


def test_a_generator_called_on_the_driver_continues_in_the_task() -> None:
    env = environment(pipeline__auto_watermark_interval="5 ms")
    script = [Burst([("a", 1)]), Pause(0.1), Burst([("b", 1)]), Pause(0.1), Burst([("c", 1)])]
    seen = collected(events(env, script, counted(Asked)).process(Seen()))
    marks = [s[2] for s in seen]
    assert marks[0] == MIN_WATERMARK
    # One for each micro-batch, and one for each time the driver asked in between.
    assert marks[1] > 1
    assert marks[2] > marks[1] + 1


class Asked(WatermarkGenerator):
    """Gives the number of times it was asked."""

    def __init__(self) -> None:
        self.times = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.times += 1
        output.emit_watermark(self.times)


@pytest.mark.parametrize("behind_an_exchange", [False, True])
def test_a_generator_is_restored_from_a_savepoint(tmp_path: Path, behind_an_exchange: bool) -> None:
    def launch(script: list[Any], restored: str | None = None) -> tuple[LaunchedJob, Path]:
        settings = {} if restored is None else {"execution__state_recovery__path": restored}
        env = environment(
            1,
            execution__checkpointing__dir=str(tmp_path / "checkpoints"),
            execution__checkpointing__interval="20 ms",
            **settings,
        )
        out = tmp_path / ("first" if restored is None else "second")
        if behind_an_exchange:
            plain = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "e")
            stream = plain.uid("events").rebalance()
            stream = stream.assign_timestamps_and_watermarks(counted(Counts)).uid("times")
        else:
            stream = events(env, script, counted(Counts)).uid("events")
        told = stream.process(Seen()).uid("seen").map(str, Types.STRING()).uid("text")
        sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder())
        policy = RollingPolicy.on_checkpoint_rolling_policy()
        told.sink_to(sink.with_rolling_policy(policy).build()).uid("out")
        return env._launch("counted"), out

    one = [Burst([("a", 1), ("b", 1)]), Pause(0.03), Burst([("c", 1)])]
    job, out = launch([*one, Idle()])
    eventually(lambda: len(read_lines(out)) == 3)
    path = job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    job, out = launch([*one, Burst([("d", 1)]), Pause(0.03), Burst([("e", 1)])], str(path))
    job.run_to_completion()
    assert sorted(read_lines(out))[-2:] == ["('d', 1, 3)", "('e', 1, 4)"]


class Locked(Counts):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class LeavesItsLock(Locked):
    def __getstate__(self) -> dict[str, Any]:
        return {"seen": self.seen}


def test_a_generator_that_cannot_be_pickled_is_named_with_its_step() -> None:
    stream = events(environment(), ONE_BY_ONE, counted(Locked)).process(Seen())
    with pytest.raises(StepError, match=r"(?s)'Source: events'.*a Locked cannot be pickled.*lock"):
        collected(stream)


def test_a_generator_may_leave_out_what_cannot_be_pickled() -> None:
    env = OtherWorkers().watch(environment())
    seen = collected(events(env, ONE_BY_ONE, counted(LeavesItsLock)).process(Seen()))
    assert [s[2] for s in seen] == [MIN_WATERMARK, 1, 2, 3]


class Raises(Marks):
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        raise RuntimeError


def test_a_generator_that_raises_is_named_with_its_step() -> None:
    stream = events(environment(), ONE_BY_ONE, counted(Raises)).process(Seen())
    with pytest.raises(UserFunctionError, match=r"'Source: events'.*on_periodic_emit"):
        collected(stream)


class AtItsTime(KeyedProcessFunction[str, Event, Any]):
    """Sets a timer at the event time of each record."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield timestamp


@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_a_generator_moves_time_without_records_and_without_micro_batches(exchange: str) -> None:
    watched = WatchedSubmitter()
    env = watched.watch(
        environment(penstock__exchange=exchange, pipeline__auto_watermark_interval="10 ms")
    )
    stream = events(env, [Burst([("a", 20), ("b", 1_000_000)]), Idle()], counted(Asked))
    with stream.key_by(first).process(AtItsTime()).execute_and_collect() as records:
        assert next(records) == 20
        _settle(watched)
        ran = len(watched.instructions)
        # The watermark moves on, and the other timer is far away.
        time.sleep(0.5)
        assert len(watched.instructions) == ran


class Late(KeyedProcessFunction[str, Event, Any]):
    """Takes its time, and tells of records behind the watermark."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        if value[0] == "held":
            time.sleep(0.03)
            if ctx.timestamp() <= ctx.timer_service().current_watermark():
                yield value


def test_a_source_is_not_idle_while_a_full_channel_holds_it_back() -> None:
    env = environment(
        execution__checkpointing__interval="30 ms",
        execution__checkpointing__max_concurrent_checkpoints="20",
        penstock__micro_batch__max_records="10",
        penstock__channel__max_records="10",
    )
    idle = ASCENDING.with_idleness(Duration.of_millis(50))
    held = events(env, [Burst([("held", n)]) for n in range(60)], idle)
    ahead = events(env, [Burst([("ahead", 100_000)]), Pause(3)])
    assert collected(held.union(ahead).key_by(first).process(Late())) == []


def test_a_source_is_not_idle_while_it_waits_for_its_group() -> None:
    env = environment(execution__checkpointing__interval="50 ms")
    pace = ASCENDING.with_watermark_alignment("pace", Duration.of_millis(10))
    script: list[Any] = []
    for n in range(20):
        script += [Burst([("held", n * 10)]), Pause(0.01)]
    held = events(env, script, pace.with_idleness(Duration.of_millis(150)))
    slow: list[Any] = []
    for n in range(0, 200, 50):
        slow += [Burst([("slow", n)]), Pause(0.5)]
    ahead = events(env, [Burst([("ahead", 100_000)]), Pause(3)])
    late = held.union(ahead).key_by(first).process(Late())
    nothing = events(env, slow, pace).filter(lambda _: False)
    assert collected(late.union(nothing)) == []


class NoNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[0]  # type: ignore[no-any-return]


def test_a_timestamp_that_is_not_a_number_is_named_with_its_record() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(NoNumber())
    with pytest.raises(UserFunctionError, match="must return milliseconds as an int"):
        collected(events(environment(), bursts([("a", 5)]), strategy).process(Seen()))


class FailsInTimer(Timed):
    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        raise RuntimeError(timestamp)


def test_a_failure_in_a_timer_names_the_timer() -> None:
    stream = events(environment(), bursts([("a", 5)])).key_by(first)
    with pytest.raises(PenstockError, match=r"on_timer\(15\)"):
        collected(stream.process(FailsInTimer()))


def test_timers_need_keys() -> None:
    class Sets(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            ctx.timer_service().register_event_time_timer(1)
            yield value

    with pytest.raises(StepError, match="timers belong to keys"):
        collected(environment().from_collection([1]).process(Sets()))


class Sums(KeyedProcessFunction[str, Event, Any]):
    """Tells the time of each timer of a key once more than it was set."""

    def process_element(self, value: Event, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(value[1] // 10 * 10 + 9)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp


@dataclass
class TimedProgram:
    """Tells the ten a key was seen in, once the watermark is behind it, into files."""

    root: Path
    backend: str = "hashmap"
    settings: dict[str, str] = field(default_factory=dict)

    def launch(self, parallelism: int, script: list[Any], fails: Sequence[int] = ()) -> LaunchedJob:
        env = environment(
            parallelism,
            state__backend__type=self.backend,
            execution__checkpointing__dir=str(self.root / "checkpoints"),
            execution__checkpointing__interval="20 ms",
            restart_strategy__type="fixed-delay",
            restart_strategy__fixed_delay__attempts="100",
            restart_strategy__fixed_delay__delay="1 ms",
            **self.settings,
        )
        stream = env.from_source(ScriptedSource(script), ASCENDING, "events").uid("events")
        if fails:
            stream = stream.map(ScriptedFailures(self.root, fails)).uid("fails")
        told = stream.key_by(first, Types.STRING()).process(Sums()).uid("sums")
        sink = FileSink.for_row_format(str(self.root / "out"), Encoder.simple_string_encoder())
        told.map(lambda t: f"{t[0]} {t[1]}", Types.STRING()).uid("text").sink_to(
            sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
        ).uid("out")
        return env._launch("timed")

    def lines(self) -> list[str]:
        return read_lines(self.root / "out")


def tens(data: Sequence[Event]) -> list[str]:
    return sorted({f"{key} {n // 10 * 10 + 9}" for key, n in data})


DATA = [(chr(97 + n * 7 % 5), n) for n in range(120)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "memory"])
def test_timers_and_watermarks_are_restored_from_a_savepoint_at_another_parallelism(
    tmp_path: Path, backend: str
) -> None:
    program = TimedProgram(tmp_path, backend)
    job = program.launch(1, [Burst(DATA[:35]), Burst(DATA[35:75]), Idle()])
    before = tens([e for e in DATA if e[1] < 70])
    eventually(lambda: sorted(program.lines()) == before)
    path = job.stop(str(tmp_path / "savepoints"), drain=False).result(20)
    assert job.wait_for_end(20)
    program.settings["execution__state_recovery__path"] = str(path)
    program.launch(2, [Burst(DATA[:75]), Burst(DATA[75:])]).run_to_completion()
    assert sorted(program.lines()) == tens(DATA)


def test_event_time_continues_from_the_savepoint_of_a_drained_job(tmp_path: Path) -> None:
    program = TimedProgram(tmp_path)
    job = program.launch(1, [Burst(DATA[:75]), Idle()])
    eventually(lambda: sorted(program.lines()) == tens([e for e in DATA if e[1] < 70]))
    path = job.stop(str(tmp_path / "savepoints"), drain=True).result(20)
    assert job.wait_for_end(20)
    assert sorted(program.lines()) == tens(DATA[:75])
    program.settings["execution__state_recovery__path"] = str(path)
    job = program.launch(1, [Burst(DATA[:75]), Burst(DATA[80:]), Idle()])
    eventually(lambda: sorted(program.lines()) == tens([*DATA[:75], *DATA[80:110]]))
    job.cancel()
    assert job.wait_for_end(20)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_timers_fire_exactly_once_however_often_the_job_fails(
    tmp_path: Path, seed: int, exchange: str
) -> None:
    chosen = random.Random(seed)
    fails = sorted(chosen.sample(range(len(DATA)), 4))
    script: list[Any] = []
    for start in range(0, len(DATA), 15):
        script += [Burst(DATA[start : start + 15]), Pause(0.03)]
    program = TimedProgram(tmp_path, settings={"penstock__exchange": exchange})
    program.launch(2, script, fails).run_to_completion()
    assert sorted(program.lines()) == tens(DATA)


class Order(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


def test_a_source_that_is_far_ahead_of_its_group_waits_for_it() -> None:
    env = environment()
    aligned = ASCENDING.with_watermark_alignment("pace", Duration.of_millis(20))
    fast = events(env, bursts(*([("fast", n)] for n in range(0, 200, 10))), aligned)
    slow = events(env, [Pause(0.3), *bursts(*([("slow", n)] for n in range(0, 200, 40)))], aligned)
    seen = collected(fast.union(slow).process(Order()))
    assert len(seen) == 25
    first_slow = seen.index(("slow", 0))
    # One micro-batch may run ahead: how far it goes is known when it is through.
    assert all(time <= 50 for _, time in seen[:first_slow])
    assert ("fast", 190) in seen
