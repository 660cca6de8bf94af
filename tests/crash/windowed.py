"""The windowed job that is killed: `python -m tests.crash.windowed SHAPE.json` runs it, or goes on.

Numbers whose times are in disorder → tumbling windows that take all that comes late and are emptied
when they fire, and sessions that wait for it → files. So every number is in one line of a tumbling
window, and the sessions are those that could be drawn by hand.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from penstock.testing import run_inline
from tests.unit.datastream.windowed_program import (
    DISORDER,
    GAP,
    SIZE,
    Collect,
    Tell,
    TimeOf,
    session_lines,
    time_of,
)
from tests.unit.job.counting import KEYS

JOB = "windowed"
FOREVER = 10**9


class Shape(msgspec.Struct, frozen=True):
    """How much of the job there is, how fast it comes, and where it runs."""

    directory: str
    records: int
    per_second: float
    spark: bool = False
    interval_ms: int = 30
    backend: str = "hashmap"

    @property
    def output(self) -> Path:
        return Path(self.directory) / "out"

    @property
    def checkpoints(self) -> Path:
        return Path(self.directory) / "checkpoints"


def build(shape: Shape) -> StreamExecutionEnvironment:
    settings = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": str(shape.checkpoints),
        "execution.checkpointing.interval": f"{shape.interval_ms} ms",
        "penstock.work-dir": str(Path(shape.directory) / "work"),
        "penstock.state.local-dir": str(Path(shape.directory) / "local"),
        "penstock.source.poll-interval": "10 ms",
        "state.backend.type": shape.backend,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "spark.master": "local[2]",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    if not shape.spark:
        run_inline(env)
    pace = RateLimiterStrategy.per_second(shape.per_second)
    source = DataGeneratorSource(int, shape.records, pace, Types.LONG())
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")

    def timed(disorder: int) -> WatermarkStrategy:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(disorder))
        return strategy.with_timestamp_assigner(TimeOf())

    late = numbers.assign_timestamps_and_watermarks(timed(0)).uid("late")
    tumbling = (
        late.key_by(lambda n: n % KEYS, Types.LONG())
        .window(TumblingEventTimeWindows(SIZE, 0))
        .trigger(PurgingTrigger.of(EventTimeTrigger()))
        .allowed_lateness(FOREVER)
        .process(Tell("tumbling"), Types.STRING())
    )
    in_time = numbers.assign_timestamps_and_watermarks(timed(DISORDER)).uid("in time")
    sessions = (
        in_time.key_by(lambda n: n % KEYS, Types.LONG())
        .window(EventTimeSessionWindows(GAP))
        .aggregate(Collect(), Tell("session"), Types.LIST(Types.LONG()), Types.STRING())
    )
    rows = FileSink.for_row_format(str(shape.output), Encoder.simple_string_encoder())
    sink = rows.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    tumbling.uid("tumbling").union(sessions.uid("sessions")).sink_to(sink).uid("files")
    return env


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


def main(path: Path) -> int:
    build(msgspec.json.decode(path.read_bytes(), type=Shape)).execute(JOB)
    print("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
