"""Windows in the job that is killed.

Numbers whose times are in disorder → tumbling windows that take all that comes late and are emptied
when they fire, and sessions that wait for it. So every number is in one line of a tumbling window,
and the sessions are those that could be drawn by hand.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

from penstock.common import Types
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from tests.crash.job_shape import Shape, numbers, timed
from tests.unit.datastream.windowed_program import (
    GAP,
    SIZE,
    Collect,
    Tell,
    session_lines,
    time_of,
)
from tests.unit.job.counting import KEYS

FOREVER = 10**9


def build(env: StreamExecutionEnvironment, shape: Shape) -> DataStream:
    all_numbers = numbers(env, "numbers", shape.records, shape.per_second)
    late = all_numbers.assign_timestamps_and_watermarks(timed(disorder=0)).uid("late")
    tumbling = (
        late.key_by(lambda n: n % KEYS, Types.LONG())
        .window(TumblingEventTimeWindows(SIZE, 0))
        .trigger(PurgingTrigger.of(EventTimeTrigger()))
        .allowed_lateness(FOREVER)
        .process(Tell("tumbling"), Types.STRING())
    )
    in_time = all_numbers.assign_timestamps_and_watermarks(timed()).uid("in time")
    sessions = (
        in_time.key_by(lambda n: n % KEYS, Types.LONG())
        .window(EventTimeSessionWindows(GAP))
        .aggregate(Collect(), Tell("session"), Types.LIST(Types.LONG()), Types.STRING())
    )
    return tumbling.uid("tumbling").union(sessions.uid("sessions"))


def faults(records: int, lines: Sequence[str]) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    found = []
    wanted = Counter(session_lines(range(records)))
    given = Counter(line for line in lines if line.startswith("session "))
    found += [f"missing: {line}" for line in wanted - given]
    found += [f"too much: {line}" for line in given - wanted]
    seen: Counter[int] = Counter()
    for line in lines:
        if line.startswith("tumbling "):
            _, key, start, end, values = line.split(" ", 4)
            for number in ast.literal_eval(values):
                seen[number] += 1
                if number % KEYS != int(key) or not int(start) <= time_of(number) < int(end):
                    found.append(f"{number} is in {line}")
    found += [f"{n} is in {seen[n]} windows" for n in range(records) if seen[n] != 1]
    return found
