"""Jobs on a cluster, one after the other on one session: `python -m tests.crash.cluster_program`.

Reads a line of JSON for each job and answers with one; the end of its input is its end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.collect_sink import CollectSink
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.job.reports import locality_stats
from penstock.state.local_dir import LOCAL_DIR_VARIABLE
from penstock.task.messages import SubtaskLocation
from penstock.testing import run_inline

KEYS = 37
LAST = 5
PACE = 400


class Order(msgspec.Struct, frozen=True):
    """A job to run."""

    records: int
    parallelism: int
    settings: dict[str, str]
    kill_at: int | None = None
    """The record at which the host that processes it dies."""
    wait_at: int | None = None
    """The record after it waits until the test opens the gate; then the job is slow."""
    directory: str = ""
    """Where it says that it has died (`dead`: its host), is `waiting`, and looks for its `gate`."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of it."""

    results: list[tuple[int, int, int, int]]
    micro_batches: int
    """Of the keyed step."""
    most_tries: int
    at_home: int
    moved: int
    rebuilt: int
    homes: list[list[SubtaskLocation | None]]
    """Of the keyed step, per micro-batch."""

    @property
    def share_at_home(self) -> float:
        """Of all subtasks of the keyed step that had run before."""
        return self.at_home / max(1, self.at_home + self.moved)


class RunningTotals(KeyedProcessFunction[int, int, tuple[int, int, int, int]]):
    """Emits key, how many so far, their total, and the sum of the last few."""

    def __init__(self, kill_at: int | None, wait_at: int | None, directory: str) -> None:
        self._kill_at = kill_at
        self._wait_at = wait_at
        self._directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self._n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self._last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[int, int, int, int]]:
        if value == self._kill_at:
            lose_power(Path(self._directory, "dead"))
        if self._wait_at is not None and value >= self._wait_at and value % PACE == 0:
            Path(self._directory, "waiting").touch()
            wait_for(Path(self._directory, "gate"))
            time.sleep(0.25)
        n, total = (self._n.value() or 0) + 1, (self._total.value() or 0) + value
        last = [*self._last.get(), value][-LAST:]
        self._n.update(n)
        self._total.update(total)
        self._last.update(last)
        yield ctx.get_current_key(), n, total, sum(last)


def lose_power(said: Path) -> None:
    """Kill this task's worker and its executor with -9, once; write down the host."""
    try:
        with said.open("x") as file:
            file.write(os.environ[LOCAL_DIR_VARIABLE])
    except FileExistsError:
        return
    executor = _parent(os.getppid())
    for pid in (_parent(executor), executor, os.getpid()):
        os.kill(pid, signal.SIGKILL)


def wait_for(gate: Path, seconds: float = 120.0) -> None:
    """Block the task until the test opens a gate."""
    end = time.monotonic() + seconds
    while not gate.exists():
        assert time.monotonic() < end, f"{gate} was not opened"
        time.sleep(0.05)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def run(order: Order, *, inline: bool = False) -> Outcome:
    """Run a job and return its result."""
    configuration = Configuration.from_dict(
        {
            "penstock.micro-batch.max-records": "400",
            "penstock.micro-batch.initial-records": "400",
            **order.settings,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    if inline:
        run_inline(env)
    env.set_parallelism(order.parallelism)
    results: list[tuple[int, int, int, int]] = []
    source = NumberSequenceSource(0, order.records - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    by_key = numbers.key_by(lambda n: n % KEYS, Types.LONG())
    keyed = by_key.process(RunningTotals(order.kill_at, order.wait_at, order.directory))
    keyed.sink_to(CollectSink(results.extend))
    batches: list[Any] = list(env.execute("running totals").get_micro_batches())
    mine = [b for b in batches if b.stage == max(b.stage for b in batches)]
    where = locality_stats(mine)
    return Outcome(
        results=results,
        micro_batches=len(mine),
        most_tries=max(b.tries for b in batches),
        at_home=where.stayed,
        moved=where.moved,
        rebuilt=where.rebuilt,
        homes=[list(b.locations) for b in mine],
    )


def main() -> None:
    """Serve until the input ends."""
    # What the session and its workers print must not come between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        outcome = run(msgspec.json.decode(line, type=Order))
        answers.write(msgspec.json.encode(outcome) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
