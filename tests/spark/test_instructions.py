"""How instructions reach the tasks if they are large, or Spark writes event logs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys

from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.datastream import CheckpointedFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.state import ListStateDescriptor


class Remembering(MapFunction, CheckpointedFunction):
    # Its operator state travels with every instruction: more than Spark allows in one message.
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("texts", Types.STRING()))
        self.texts = list(self.state.get())

    def snapshot_state(self, context):
        self.state.update(self.texts)

    def map(self, value):
        if not self.texts:
            self.texts.append("text of a user" * 100_000)
        return value


exchange, frame, logs = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict(
        {
            "spark.master": "local[2,4]",
            "spark.rpc.message.maxSize": "1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{logs}",
            "spark.eventLog.compress": "false",
            "penstock.exchange": exchange,
            "penstock.micro-batch.max-records": "100",
        }
    )
).set_parallelism(2)
source = env.from_source(NumberSequenceSource(1, 600), WatermarkStrategy.no_watermarks(), "n")
numbers = source.map(Remembering(), Types.LONG())
if frame == "native":
    rows = numbers.map(lambda n: Row(n), Types.ROW_NAMED(["n"], [Types.LONG()]))
    numbers = rows.sql("SELECT n FROM stream").map(lambda row: row.n, Types.LONG())
    numbers = numbers.map(Remembering(), Types.LONG())
with numbers.key_by(lambda n: n % 2, Types.LONG()).reduce(
    lambda a, b: a + b
).execute_and_collect() as results:
    print("results", *sorted(results)[-2:])
"""
TOTALS = sorted([sum(range(1, 600, 2)), sum(range(2, 601, 2))])


@pytest.mark.parametrize("frame", ["python", "native"])
@pytest.mark.parametrize("exchange", ["channel", "shuffle"])
def test_large_state_of_operators_reaches_the_tasks_and_is_in_no_event_log(
    exchange: str, frame: str, tmp_path: Path
) -> None:
    program, logs = tmp_path / "program.py", tmp_path / "logs"
    program.write_text(PROGRAM)
    logs.mkdir()
    run = subprocess.run(
        [sys.executable, str(program), exchange, frame, str(logs)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines() == [f"results {TOTALS[0]} {TOTALS[1]}"]
    events = [path.read_text() for path in logs.rglob("*") if path.is_file()]
    assert any("SparkListenerJobStart" in text for text in events)
    assert not any("penstock.instruction" in text for text in events)
