"""Every kind of state there is, behind steps whose uids are automatic.

Numbers with event time of their own generator → all kinds of keyed state and timers of both kinds
of time → operator state → files; beside it windows of all kinds → files, Parquet and a two-phase
sink; and rules that are broadcast.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.common.types import RowKind
from penstock.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from penstock.datastream import (
    AggregateFunction,
    CheckpointedFunction,
    CountWindow,
    DataStream,
    GlobalWindow,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
    TimeWindow,
)
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    RawStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from penstock.testing import ScriptedSource
from tests.golden.programs.running import Run
from tests.golden.programs.two_phase import Shelf

JOB = "states"
NUMBERS, CUT = 300, 150
KEYS = 5
RULES, FIRST_RULES = 5, 3
SIZE, GAP, WAIT = 100, 60, 200
BELL = 1_500_000
"""A processing time between that of the job that is made and that of the one restored."""
END = 10**15
BOTH_ENDED = END + 1000
"""Reached by the watermark when both inputs have ended."""
HOUR = 3600.0

RATES = MapStateDescriptor("rates", Types.LONG(), Types.LONG())
SESSION = Types.ROW_NAMED(
    ["key", "start", "end", "total"], [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()]
)
PAIR = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])


def time_of(number: int) -> int:
    """Numbers come every 10 ms, and after twenty of them a second late."""
    return number * 10 + number // 20 * 1000


def key_of(number: int) -> int:
    return number % KEYS


class Times(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return time_of(value)


class Behind(WatermarkGenerator):
    """A generator of the user's own, whose fields are in every checkpoint."""

    def __init__(self) -> None:
        self.highest = -(10**6)
        self.window = TimeWindow(0, 0)

    def on_event(self, event: int, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp < self.highest:
            message = f"{event_timestamp} comes behind {self.highest}"
            raise AssertionError(message)
        self.highest = event_timestamp
        self.window = TimeWindow(0, event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        assert self.window.end in (self.highest, 0)
        output.emit_watermark(self.highest - 1)


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def add(one: int, other: int) -> int:
    return one + other


def kept_for(number: int, count: int) -> tuple[Any, ...]:
    """A value that is pickled, and names classes of ours."""
    row = Row(number=number, count=count)
    row.set_row_kind(RowKind.UPDATE_AFTER)
    return row, TimeWindow(number, number + 1), CountWindow(count), GlobalWindow.get()


class Book(KeyedProcessFunction[int, int, str]):
    """Writes all kinds of keyed state for every number, and a line with what it finds there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        context = runtime_context
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.seen = context.get_map_state(MapStateDescriptor("seen", Types.STRING(), Types.LONG()))
        self.total = context.get_reducing_state(ReducingStateDescriptor("total", add, Types.LONG()))
        self.mean = context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        self.kept = context.get_state(ValueStateDescriptor("kept"))
        self.row = context.get_state(ValueStateDescriptor("row", PAIR))
        self.raw = context.get_raw_state(RawStateDescriptor("raw"))
        self.first = context.get_state(_expiring("first"))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        kept, row = self.kept.value(), self.row.value()
        assert kept == (None if kept is None else kept_for(kept[0].number, count - 1))
        before = None if kept is None else kept[0].number
        assert row == (None if kept is None else Row(number=before, text=str(before)))
        if count == 1:
            self.first.update(value)
            ctx.timer_service().register_processing_time_timer(BELL)
        self.count.update(count)
        self.last.update([*self.last.get(), value][-3:])
        parity = "even" if value // KEYS % 2 == 0 else "odd"
        self.seen.put(parity, (self.seen.get(parity) or 0) + 1)
        self.total.add(value)
        self.mean.add(value)
        self.kept.update(kept_for(value, count))
        self.row.update(Row(number=value, text=str(value)))
        raw = (self.raw.get() or b"")[-2:] + bytes([value % 256])
        self.raw.set(raw)
        ctx.timer_service().register_event_time_timer(time_of(value) + WAIT)
        facts = (
            count, list(self.last.get()), sorted(self.seen.items()), self.total.get(),
            self.mean.get(), before, raw.hex(), self.first.value(),
        )  # fmt: skip
        yield f"book {ctx.get_current_key()} {value} {facts}"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[str]:
        kind = "rang" if ctx.time_domain() is TimeDomain.PROCESSING_TIME else "alarm"
        yield f"{kind} {ctx.get_current_key()} {timestamp}"


def _expiring(name: str) -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor(name, Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
    return descriptor


class Stamps(MapFunction[str, str], CheckpointedFunction):
    """Numbers what passes a subtask, with operator state that is split and one that is united."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self._list = store.get_list_state(
            ListStateDescriptor("stamps", Types.TUPLE([Types.STRING(), Types.LONG()]))
        )
        self._union = store.get_union_list_state(
            ListStateDescriptor("counts", Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        self._stamps = [tuple(stamp) for stamp in self._list.get()]
        self._counts = dict(self._union.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self._list.update(list(self._stamps))
        self._union.update(list(self._counts.items()))

    def map(self, value: str) -> str:
        if not self._stamps:
            self._stamps.append((f"s{self._subtask}", 0))
        name, number = self._stamps[0]
        self._stamps[0] = name, number + 1
        self._counts[self._subtask] = self._counts.get(self._subtask, 0) + 1
        others = sum(c for subtask, c in self._counts.items() if subtask != self._subtask)
        return f"{value} | {name} {number + 1} {others}"


class Told(ProcessWindowFunction[Any, str, int, Any]):
    """A line of what is in a window, and how often it fired: state per window."""

    def __init__(self, name: str) -> None:
        self._name = name

    def process(
        self, key: int, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterable[str]:
        fired = context.global_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        fired.update((fired.value() or 0) + 1)
        values = [e.number if isinstance(e, Row) else e for e in elements]
        yield f"{self._name} {key} {fired.value()} {values}"


class Sessions(ProcessWindowFunction[int, Row, int, TimeWindow]):
    def process(
        self, key: int, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[Row]:
        window = context.window()
        (total,) = elements
        yield Row(key, window.start, window.end, total)


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Rated(KeyedBroadcastProcessFunction[int, int, int, str]):
    """Says at the end what all rules together are worth."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        ctx.timer_service().register_event_time_timer(END)
        self.count.update((self.count.value() or 0) + 1)

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        rules = ctx.get_broadcast_state(RATES)
        rules.put(value, (rules.get(value) or 0) + value + 1)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[str]:
        if timestamp < BOTH_ENDED:
            # The watermark of the rules is at END after the first of them: more may follow.
            ctx.timer_service().register_event_time_timer(BOTH_ENDED)
            return
        worth = sum(value for _, value in ctx.get_broadcast_state(RATES).items())
        yield f"rates {ctx.get_current_key()} {self.count.value()} {worth}"


def build(run: Run) -> StreamExecutionEnvironment:
    """Make the program; no step has a uid of its own."""
    env = run.environment(JOB)
    numbers = _source(env, "numbers", run.script(range(NUMBERS), CUT))
    strategy = WatermarkStrategy.for_generator(Behind).with_timestamp_assigner(Times())
    timed = numbers.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    keyed = timed.key_by(key_of, Types.LONG())
    keyed.process(Book(), Types.STRING()).map(Stamps(), Types.STRING()).sink_to(run.files("book"))
    _windows(run, timed, keyed)
    rules = _source(env, "rules", run.script(range(RULES), FIRST_RULES))
    never = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_EndOfTime())
    rules = rules.assign_timestamps_and_watermarks(never).set_parallelism(1)
    rated = keyed.connect(rules.broadcast(RATES)).process(Rated(), Types.STRING())
    rated.sink_to(run.files("rates"))
    return env


class _EndOfTime(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return END + 10


def _source(env: StreamExecutionEnvironment, name: str, script: Sequence[Any]) -> DataStream:
    source = ScriptedSource({name: script}, Types.LONG())
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name).set_parallelism(1)


def _windows(run: Run, timed: DataStream, keyed: KeyedStream) -> None:
    tumbling = keyed.window(TumblingEventTimeWindows(SIZE, 0)).process(
        Told("tumbling"), Types.STRING()
    )
    pickled = timed.map(lambda n: Row(number=n, window=TimeWindow(n, n + 1))).set_parallelism(1)
    by_number = pickled.key_by(lambda row: key_of(row.number), Types.LONG())
    in_all = (
        by_number.window(GlobalWindows.create())
        .trigger(PurgingTrigger.of(CountTrigger(4)))
        .evictor(CountEvictor.of(3))
        .process(Told("global"), Types.STRING())
    )
    tumbling.union(in_all).sink_to(run.files("windows", rolls_at_checkpoint=False))
    sessions = keyed.window(EventTimeSessionWindows(GAP)).aggregate(
        Sum(), Sessions(), Types.LONG(), SESSION
    )
    sessions.sink_to(
        FileSink.for_bulk_format(run.output / "sessions", ParquetBulkWriters.for_row_type(SESSION))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    counted = keyed.count_window(3).reduce(add)
    counted.map(lambda total: f"counted {total}", Types.STRING()).sink_to(
        Shelf(run.output / "counted").sink()
    )


# -- what must have come out --------------------------------------------------------------------


def numbers_of(key: int) -> list[int]:
    return list(range(key, NUMBERS, KEYS))


def book_lines(expired_from: int = NUMBERS) -> Counter[str]:
    """Compute the lines of all numbers; behind a number, what expires may be gone."""
    lines: Counter[str] = Counter()
    for key in range(KEYS):
        numbers = numbers_of(key)
        lines[f"rang {key} {BELL}"] += 1
        for index, number in enumerate(numbers):
            so_far = numbers[: index + 1]
            seen = Counter("even" if n // KEYS % 2 == 0 else "odd" for n in so_far)
            facts = (
                index + 1, so_far[-3:], sorted(seen.items()), sum(so_far),
                sum(so_far) / len(so_far), so_far[-2] if index else None,
                bytes(n % 256 for n in so_far[-3:]).hex(),
                key if number < expired_from else None,
            )  # fmt: skip
            lines[f"book {key} {number} {facts}"] += 1
            lines[f"alarm {key} {time_of(number) + WAIT}"] += 1
    return lines


def faults(run: Run, expired_from: int = NUMBERS, *, rescaled: bool = False) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    stamped = [line.split(" | ") for line in run.lines("book")]
    found = _differences("book", Counter(line for line, _ in stamped), book_lines(expired_from))
    found += _stamp_faults([stamp.split() for _, stamp in stamped], rescaled=rescaled)
    windows = run.lines("windows")
    found += _differences("windows", Counter(windows), _window_lines())
    found += _differences("sessions", Counter(_sessions_in(run)), Counter(_sessions()))
    sums = (
        f"counted {sum(numbers_of(key)[i : i + 3])}"
        for key in range(KEYS)
        for i in range(0, len(numbers_of(key)) - 2, 3)
    )
    shelf = Shelf(run.output / "counted")
    found += _differences("counted", Counter(shelf.shown()), Counter(sums))
    found += [f"still prepared: {name}" for name in shelf.waiting()]
    worth = sum(range(1, RULES + 1))
    rates = Counter(f"rates {key} {len(numbers_of(key))} {worth}" for key in range(KEYS))
    return found + _differences("rates", Counter(run.lines("rates")), rates)


def _differences(where: str, given: Counter[Any], wanted: Counter[Any]) -> list[str]:
    return [
        *(f"{where}: missing: {line}" for line in wanted - given),
        *(f"{where}: too much: {line}" for line in given - wanted),
    ]


def _stamp_faults(stamps: list[list[str]], *, rescaled: bool) -> list[str]:
    numbers: dict[str, list[int]] = defaultdict(list)
    first: Counter[str] = Counter()
    behind: dict[str, set[int]] = defaultdict(set)
    for name, number, others in stamps:
        numbers[name].append(int(number))
        first[name] += others == "0"
        behind[name].add(int(others))
    found = [
        f"the stamps of {name} are not counted on"
        for name, given in numbers.items()
        if sorted(given) != list(range(1, len(given) + 1))
    ]
    if rescaled:
        return found
    for name, other in (("s0", "s1"), ("s1", "s0")):
        if behind[name] != {0, first[other]} or not first[other]:
            found.append(f"{name} knew {behind[name]} of {other}, which had {first[other]}")
    return found


def _window_lines() -> Counter[str]:
    lines: Counter[str] = Counter()
    for key in range(KEYS):
        numbers = numbers_of(key)
        windows: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            windows[time_of(number) // SIZE].append(number)
        for fired, start in enumerate(sorted(windows), 1):
            lines[f"tumbling {key} {fired} {windows[start]}"] += 1
        for fired, start in enumerate(range(0, len(numbers) - 3, 4), 1):
            lines[f"global {key} {fired} {numbers[start + 1 : start + 4]}"] += 1
    return lines


def _sessions() -> Iterator[tuple[int, ...]]:
    for key in range(KEYS):
        for twenty in range(0, NUMBERS, 20):
            members = [n for n in numbers_of(key) if n // 20 == twenty // 20]
            yield key, time_of(members[0]), time_of(members[-1]) + GAP, sum(members)


def _sessions_in(run: Run) -> Iterator[tuple[int, ...]]:
    for part in sorted((run.output / "sessions").glob("[!.]*")):
        for row in pq.read_table(part).to_pylist():
            yield tuple(row.values())
