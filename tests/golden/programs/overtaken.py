"""Records in flight: barriers overtake what waits before a slow step of two inputs.

All steps but the inner ones have uids of their own; there is a side output, too.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from penstock.common import Row, Types, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.testing import ScriptedSource
from tests.golden.programs.running import Run

JOB = "overtaken"
LEFT, RIGHT, CUT = 240, 240, 180
KEYS = 7
THINK_S = 0.004
PAIR = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])
THIRDS = OutputTag("thirds", PAIR)


class Split(ProcessFunction[int, Row]):
    """Sends every third number to the side."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        row = Row(value, f"number {value}")
        yield (THIRDS, row) if value % 3 == 0 else row


class Meet(KeyedCoProcessFunction[int, Row, Any, str]):
    def __init__(self, think_s: float) -> None:
        self._think_s = think_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.sides = runtime_context.get_list_state(ListStateDescriptor("sides", Types.STRING()))

    def process_element1(self, value: Row, ctx: KeyedCoProcessFunction.Context) -> Iterable[str]:
        yield self._meet("left", value.number, ctx)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[str]:
        number, row = value
        assert row == Row(number=number, half=number / 2)
        yield self._meet("right", number, ctx)

    def _meet(self, side: str, number: int, ctx: KeyedCoProcessFunction.Context) -> str:
        time.sleep(self._think_s)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.sides.add(side[0])
        sides = "".join(self.sides.get())
        assert len(sides) == count
        return f"{side} {ctx.get_current_key()} {number} {count} {sides.count('l')}"


def build(run: Run) -> StreamExecutionEnvironment:
    """Make the program; a restored one takes no time for a record."""
    env = run.environment(
        JOB,
        execution__checkpointing__unaligned__enabled="true",
        penstock__micro_batch__max_records="12",
        penstock__micro_batch__initial_records="12",
        penstock__checkpoint__records="100",
    )
    numbers = _source(env, "left", run.script(range(LEFT), CUT))
    rows = numbers.process(Split(), PAIR).uid("split").set_parallelism(1)
    thirds = rows.get_side_output(THIRDS)
    # Not declared, so it is pickled on its way.
    right = (
        _source(env, "right", run.script(range(RIGHT), CUT))
        .map(lambda n: (n, Row(number=n, half=n / 2)))
        .set_parallelism(1)
    )
    met = (
        rows.union(thirds)
        .connect(right)
        .key_by(lambda row: row[0] % KEYS, lambda pair: pair[0] % KEYS, Types.LONG())
        .process(Meet(0.0 if run.more else THINK_S), Types.STRING())
        .uid("meet")
    )
    met.sink_to(run.files("met")).uid("files")
    return env


def _source(env: StreamExecutionEnvironment, name: str, script: list[Any]) -> DataStream:
    source = ScriptedSource({name: script}, Types.LONG())
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name)
    return stream.uid(name).set_parallelism(1)


def faults(run: Run) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    seen: Counter[tuple[str, int]] = Counter()
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found = []
    for line in run.lines("met"):
        side, key, number, count, lefts = line.split()
        seen[side, int(number)] += 1
        counts[key].append((int(count), int(lefts)))
        if int(number) % KEYS != int(key):
            found.append(f"{number} came to {key}")
    wanted = Counter(
        {("left", n): 1 for n in range(LEFT)} | {("right", n): 1 for n in range(RIGHT)}
    )
    found += [f"missing: {one}" for one in wanted - seen]
    found += [f"too much: {one}" for one in seen - wanted]
    for key, given in counts.items():
        expected = len(range(int(key), LEFT, KEYS))
        if [count for count, _ in sorted(given)] != list(range(1, len(given) + 1)):
            found.append(f"the records of {key} are not counted on")
        if max(given)[1] != expected:
            found.append(f"{key} has {max(given)[1]} of the left, and not {expected}")
    return found
