"""Timers in the job that is killed.

Each number sets two timers of its key. The one in event time fires at a time that is known
beforehand, unless the next number of the key deletes it. The one in processing time brings the
number out again, or a later one that takes its place does: so every number comes out once, but for
the last ones, whose timers are not due when the input ends.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.common import Types
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.crash.job_shape import Shape, numbers, timed
from tests.unit.datastream.windowed_program import time_of
from tests.unit.job.counting import KEYS

WAIT = 300
"""Longer than the watermark can run ahead while a key gets its next number."""
SOON = 20
END = 10**15


def deletes(number: int) -> bool:
    """Whether a number takes away the timers of the one of its key before it."""
    return number % 4 == 3


class Alarms(KeyedProcessFunction[int, int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.alarm = runtime_context.get_state(ValueStateDescriptor("alarm", Types.LONG()))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))
        waiting = MapStateDescriptor("waiting", Types.LONG(), Types.LIST(Types.LONG()))
        self.waiting = runtime_context.get_map_state(waiting)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_event_time_timer(END)
        alarm, due = time_of(value) + WAIT, timers.current_processing_time() + SOON
        together = [value]
        if deletes(value):
            timers.delete_event_time_timer(self.alarm.value() or 0)
            before = self.due.value() or 0
            timers.delete_processing_time_timer(before)
            together += self.waiting.get(before) or []
            self.waiting.remove(before)
        timers.register_event_time_timer(alarm)
        timers.register_processing_time_timer(due)
        self.alarm.update(alarm)
        self.due.update(due)
        self.waiting.put(due, [*(self.waiting.get(due) or []), *together])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[str]:
        key = ctx.get_current_key()
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            yield f"rang {key} {timestamp} {self.waiting.get(timestamp) or []}"
            self.waiting.remove(timestamp)
        elif timestamp < END:
            yield f"alarm {key} {timestamp}"
        else:
            for due, left in list(self.waiting.items()):
                ctx.timer_service().delete_processing_time_timer(due)
                yield f"left {key} {due} {left}"
            self.waiting.clear()


def build(env: StreamExecutionEnvironment, shape: Shape) -> DataStream:
    # One subtask reads, so that the numbers of a key come in order.
    ordered = numbers(env, "alarmed", shape.records, shape.per_second, timed()).set_parallelism(1)
    keyed = ordered.key_by(lambda n: n % KEYS, Types.LONG())
    return keyed.process(Alarms(), Types.STRING()).uid("alarms")


def alarm_lines(records: int) -> Counter[str]:
    stay = (n for n in range(records) if n + KEYS >= records or not deletes(n + KEYS))
    return Counter(f"alarm {n % KEYS} {time_of(n) + WAIT}" for n in stay)


def faults(records: int, lines: Sequence[str]) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    wanted = alarm_lines(records)
    given = Counter(line for line in lines if line.startswith("alarm "))
    found = [f"missing: {line}" for line in wanted - given]
    found += [f"too much: {line}" for line in given - wanted]
    seen: Counter[int] = Counter()
    last: dict[str, int] = {}
    rang = [line.split(" ", 3) for line in lines if line.startswith("rang ")]
    left = [line.split(" ", 3) for line in lines if line.startswith("left ")]
    for _, key, due, waited in rang:
        last[key] = max(last.get(key, 0), int(due))
        if waited == "[]":
            found.append(f"a timer of {key} at {due} was deleted, or has fired before")
    for _, key, due, waited in left:
        if int(due) <= last.get(key, 0):
            found.append(f"a timer of {key} at {due} never fired: {waited}")
    for _, key, _, waited in rang + left:
        seen.update(ast.literal_eval(waited))
        found += [f"{n} came to {key}" for n in ast.literal_eval(waited) if n % KEYS != int(key)]
    found += [f"{n} came out {seen[n]} times" for n in range(records) if seen[n] != 1]
    return found
