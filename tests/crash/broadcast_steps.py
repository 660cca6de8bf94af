"""Broadcast state in the job that is killed.

Rules come one after the other while numbers come, and each adds to what a number is worth. Which
rules a number meets is open, but only so many of the first ones, each once, and not fewer than the
numbers of its key before it; at the end all are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.common import Types
from penstock.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.crash.job_shape import Shape, numbers
from tests.unit.job.counting import KEYS

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
NUMBERS_PER_RULE = 5
END = 10**15


def value_of(rule: int) -> int:
    return rule * rule + 1


def worths(records: int) -> list[int]:
    """The value of a number after no rule, after the first, and so on."""
    values = [value_of(rule) for rule in range(records // NUMBERS_PER_RULE)]
    return [sum(values[:known]) for known in range(len(values) + 1)]


class Rated(KeyedBroadcastProcessFunction[int, int, int, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[str]:
        ctx.timer_service().register_event_time_timer(END)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"rated {ctx.get_current_key()} {count} {_worth(ctx)} {value}"

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value, (rules.get(value) or 0) + value_of(value))

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[str]:
        yield f"rates {ctx.get_current_key()} {self.count.value()} {_worth(ctx)}"


def _worth(ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> int:
    return sum(value for _, value in ctx.get_broadcast_state(RULES).items())


def build(env: StreamExecutionEnvironment, shape: Shape) -> DataStream:
    rated = numbers(env, "rated", shape.records, shape.per_second)
    count, pace = shape.records // NUMBERS_PER_RULE, shape.per_second / NUMBERS_PER_RULE
    rules = numbers(env, "rules", count, pace).set_parallelism(1)
    keyed = rated.key_by(lambda n: n % KEYS, Types.LONG())
    return keyed.connect(rules.broadcast(RULES)).process(Rated(), Types.STRING()).uid("rate")


def faults(records: int, lines: Sequence[str]) -> list[str]:
    """Say what is wrong with the output of a job that has ended; nothing, if it is exact."""
    known = worths(records)
    found = []
    seen: Counter[int] = Counter()
    for key in range(KEYS):
        split = (line.split(" ") for line in lines if line.startswith(f"rated {key} "))
        mine = sorted(tuple(map(int, words[2:])) for words in split)
        counts, met, values = [[one[i] for one in mine] for i in range(3)]
        seen.update(values)
        found += [f"{n} came to {key}" for n in values if n % KEYS != key]
        if counts != list(range(1, len(mine) + 1)):
            found.append(f"the numbers of {key} were counted {counts}")
        if met != sorted(met) or not set(met) <= set(known):
            found.append(f"the numbers of {key} met rules worth {met}")
        end = [line for line in lines if line.startswith(f"rates {key} ")]
        if end != [f"rates {key} {len(mine)} {known[-1]}"]:
            found.append(f"at the end {key} had {end}")
    found += [f"{n} was rated {seen[n]} times" for n in range(records) if seen[n] != 1]
    return found
