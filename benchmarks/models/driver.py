"""The job that is killed: it stores a value per key, and every record takes some time."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.models.scheduled_source import Schedule, ScheduledSource
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing.inline import run_inline

JOB_ID = "models"
SLEEP, COMPUTE = "sleep", "compute"
SPARK, INLINE = "spark", "inline"


class Store(KeyedProcessFunction[int, int, int]):
    """Give every key that comes a new value, after waiting or computing as long as asked to."""

    def __init__(self, value_bytes: int, work: str, micros: int) -> None:
        self._value_bytes = value_bytes
        self._sleep = micros / 1e6 if work == SLEEP else 0.0
        # About a third of a microsecond each.
        self._rounds = micros * 3 if work == COMPUTE else 0

    def open(self, runtime_context: RuntimeContext) -> None:
        array = Types.PRIMITIVE_ARRAY(Types.BYTE())
        self._value = runtime_context.get_state(ValueStateDescriptor("value", array))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        if self._sleep:
            time.sleep(self._sleep)
        if self._rounds:
            hashlib.pbkdf2_hmac("sha256", b"password", b"salt", self._rounds)
        self._value.update(os.urandom(self._value_bytes))
        yield value


def hold(
    directory: str,
    schedule: str,
    interval_s: float,
    backend: str,
    value_bytes: int,
    work: str,
    micros: int,
    engine: str,
) -> dict[str, Any]:
    """Run the job until the process is killed."""
    place = Path(directory)
    config = Configuration()
    for key, value in {
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{round(interval_s * 1000)} ms",
        "execution.checkpointing.dir": str(place / "checkpoints"),
        "penstock.work-dir": str(place / "work"),
        "penstock.state.local-dir": str(place / "local"),
        "penstock.job-id": JOB_ID,
        # How long the driver was dead counts from its last heartbeat.
        "heartbeat.interval": "1 s",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    if engine == INLINE:
        run_inline(env).set_parallelism(1)
    source = ScheduledSource(Schedule.read(Path(schedule)))
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "keys")
        .key_by(lambda key: key, key_type=Types.LONG())
        .process(Store(value_bytes, work, micros), output_type=Types.LONG())
        .name("store")
        .uid("store")
        .sink_to(DiscardingSink())
    )
    client = env.execute_async("models")
    result = client.get_job_execution_result()
    while not result.done():
        time.sleep(1.0)
        if not place.exists():
            client.cancel()
            sys.exit("this process was not killed")
    result.result()
    msg = "the job ended by itself"
    raise RuntimeError(msg)
