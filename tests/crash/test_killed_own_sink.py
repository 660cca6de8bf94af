"""A sink made of functions, in a driver that is killed wherever it happens to be."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

ORDERS = 1200
KILLS = 4
PROGRAM = f"""
import runpy, sys
from pathlib import Path
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from penstock.testing import run_inline

directory, example, pace = *map(Path, sys.argv[1:3]), int(sys.argv[3])
sink = runpy.run_path(str(example))["sqlite_sink"](directory / "orders.db")
env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({{"execution.checkpointing.dir": str(directory / "checkpoints")}})
)
env.set_parallelism(2)
env.enable_checkpointing(20)
limit = RateLimiterStrategy.per_second(pace)
source = DataGeneratorSource(str, {ORDERS}, limit, Types.STRING())
env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").sink_to(sink)
run_inline(env).execute("orders")
"""


def column(database: Path, name: str, table: str) -> list[str]:
    with contextlib.suppress(sqlite3.OperationalError):
        uri = f"file:{database}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
            return [value for (value,) in connection.execute(f"SELECT {name} FROM {table}")]
    return []


def test_each_order_is_written_once_even_if_the_driver_is_killed_repeatedly(tmp_path: Path) -> None:
    chance = random.Random(5)
    example = Path(__file__).parents[2] / "examples" / "own_sink.py"
    database = tmp_path / "orders.db"
    killed = 0
    ended = False
    while not ended:
        before = len(column(database, "name", "ledger"))
        # Its input must not end before it was killed as often as planned.
        pace = "100" if killed < KILLS else "2000"
        with (tmp_path / "log").open("a") as log:
            driver = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(tmp_path), str(example), pace], stderr=log
            )
        if killed < KILLS:
            while driver.poll() is None and len(column(database, "name", "ledger")) == before:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.2))
            driver.kill()
            killed += 1
        ended = driver.wait() == 0
        assert ended or (killed <= KILLS and driver.returncode == -9), (
            tmp_path / "log"
        ).read_text()
    assert sorted(map(int, column(database, "value", "orders"))) == list(range(ORDERS))
    assert column(database, "name", "staged") == []
    assert killed == KILLS
