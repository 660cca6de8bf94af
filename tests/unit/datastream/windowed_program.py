"""A windowed program whose output shows every record that was lost or counted twice.

Event times are out of order, but never so far behind that a record is late: what comes out is the
same whatever happens on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.testing import ScriptedFailures, ScriptedSource
from tests.unit.job.counting import KEYS, Program

SIZE = 100
GAP = 25
DISORDER = 60


def time_of(number: int) -> int:
    """When a number happened: in disorder, and with a pause now and then."""
    return 10 * number + number * 37 % DISORDER + 70 * (number // 11)


class TimeOf(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return time_of(value)


class Collect(AggregateFunction[int, list[int], list[int]]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [*accumulator, value]

    def get_result(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Tell(ProcessWindowFunction[Any, str, int, Any]):
    """Spells a window with what is in it, folded or not."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterable[str]:
        found = list(elements)
        values = found[0] if self._kind != "tumbling" else sorted(found)
        window = context.window()
        yield f"{self._kind} {key} {window.start} {window.end} {values}"


def tumbling_lines(numbers: Iterable[int]) -> list[str]:
    windows: dict[tuple[int, int], list[int]] = {}
    for number in numbers:
        start = time_of(number) // SIZE * SIZE
        windows.setdefault((number % KEYS, start), []).append(number)
    return [f"tumbling {k} {s} {s + SIZE} {sorted(v)}" for (k, s), v in windows.items()]


def session_lines(numbers: Iterable[int]) -> list[str]:
    sessions: list[tuple[int, list[int]]] = []
    for key in range(KEYS):
        mine = sorted((time_of(n), n) for n in numbers if n % KEYS == key)
        for i, (time, number) in enumerate(mine):
            if i == 0 or time - mine[i - 1][0] > GAP:
                sessions.append((key, []))
            sessions[-1][1].append(number)
    return [
        f"session {k} {min(map(time_of, v))} {max(map(time_of, v)) + GAP} {sorted(v)}"
        for k, v in sessions
    ]


def expected(records: int) -> Counter[str]:
    return Counter([*tumbling_lines(range(records)), *session_lines(range(records))])


@dataclass
class Windowed(Program):
    """Numbers in tumbling windows, which keep them all, and in sessions, which fold them."""

    def build(self) -> StreamExecutionEnvironment:
        env = self.environment()
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER))
        numbers = env.from_source(
            ScriptedSource(self.script, Types.LONG(), self.clock),
            strategy.with_timestamp_assigner(TimeOf()),
            "numbers",
        ).uid("numbers")
        failing = numbers.map(ScriptedFailures(self.root, self.fails), Types.LONG()).uid("failing")
        keyed = failing.key_by(lambda n: n % KEYS, Types.LONG())
        tumbling = keyed.window(TumblingEventTimeWindows(SIZE, 0)).process(
            Tell("tumbling"), Types.STRING()
        )
        sessions = keyed.window(EventTimeSessionWindows(GAP)).aggregate(
            Collect(), Tell("session"), Types.LIST(Types.LONG()), Types.STRING()
        )
        both = tumbling.uid("tumbling").union(sessions.uid("sessions"))
        both.sink_to(self.sink()).uid("files")
        return env
