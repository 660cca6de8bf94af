"""A small job that comes to all kinds of ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import Pause, ScriptedFailures, ScriptedSource
from tests.golden.programs.running import Run

JOB = "counts"
NUMBERS, CUT = 400, 300
KEYS = 4


class Count(KeyedProcessFunction[int, int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{ctx.get_current_key()} {value} {count}"


def build(run: Run, fails_on: tuple[int, ...] = (), cut: int = CUT) -> StreamExecutionEnvironment:
    """Make the program; it may fail on some numbers, once each."""
    env = run.environment(JOB)
    script = run.script(range(NUMBERS), cut)
    source = ScriptedSource({"numbers": [script[0], Pause(0.05), *script[1:]]}, Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    failing = numbers.map(ScriptedFailures(run.directory, on=fails_on), Types.LONG()).uid("maybe")
    keyed = failing.key_by(lambda n: n % KEYS, Types.LONG())
    keyed.process(Count(), Types.STRING()).uid("count").sink_to(run.files("counts")).uid("files")
    return env


def faults(run: Run) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    wanted = Counter(f"{n % KEYS} {n} {n // KEYS + 1}" for n in range(NUMBERS))
    given = Counter(run.lines("counts"))
    return [f"missing: {line}" for line in wanted - given] + [
        f"too much: {line}" for line in given - wanted
    ]
