"""A job whose state is as large as wanted: one value of random bytes per key."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.checkpoints.gated_source import Gate, GatedSource, gate_named
from penstock.checkpoint.history import CheckpointRecord, History, RecordStatus, Recovery
from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.checkpoint.store import Completed
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.job_client import JobClient
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.ids import JobKey
from penstock.job.launch import LaunchedJob
from penstock.job.report import MicroBatchReport

MB = 1_000_000
KEYED_STEP = "store"
JOB_ID = "large-state"
GATE = "large-state"
BUILD_AT_ONCE = 25_000
PIECES = 8
"""Micro-batches that a change is spread over."""
PATIENCE_S = 900.0


@dataclass(frozen=True)
class StateShape:
    """How large the state is, and where it lies."""

    backend: str
    megabytes: float
    value_bytes: int = 1000

    @property
    def keys(self) -> int:
        return max(PIECES, round(self.megabytes * MB / self.value_bytes))


class Store(KeyedProcessFunction[int, int, int]):
    """Give every key that comes a new value; random, so that nothing can be compressed."""

    def __init__(self, value_bytes: int) -> None:
        self._value_bytes = value_bytes

    def open(self, runtime_context: RuntimeContext) -> None:
        array = Types.PRIMITIVE_ARRAY(Types.BYTE())
        self._value = runtime_context.get_state(ValueStateDescriptor("value", array))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self._value.update(os.urandom(self._value_bytes))
        yield value


class LargeState:
    """The job while it runs in this process, with its source at a gate."""

    def __init__(self, shape: StateShape, directory: Path, settings: Mapping[str, str]) -> None:
        self.shape = shape
        self.gate: Gate = gate_named(GATE)
        self._dir = JobDir(directory, JobKey(JOB_ID))
        env = StreamExecutionEnvironment.get_execution_environment(
            _configuration(shape, directory, settings)
        )
        source = GatedSource(shape.keys, GATE)
        (
            env.from_source(source, WatermarkStrategy.no_watermarks(), "keys")
            .key_by(lambda key: key, key_type=Types.LONG())
            .process(Store(shape.value_bytes), output_type=Types.LONG())
            .name(KEYED_STEP)
            .uid(KEYED_STEP)
            .sink_to(DiscardingSink())
        )
        self.client: JobClient = env.execute_async("large state")

    @property
    def history(self) -> History:
        return History(self._dir.storage)

    def build(self) -> None:
        """Put a value under every key."""
        self.gate.let_through(self.shape.keys, BUILD_AT_ONCE)
        self.wait_until_processed(self.shape.keys)

    def change(self, records: int) -> int:
        """Begin to give new values to so many keys; returns the position behind the last."""
        at_once = min(BUILD_AT_ONCE, max(1, records // PIECES))
        return self.gate.let_through(records, at_once)

    def wait_until_planned(self, position: int) -> None:
        _wait(lambda: self.gate.planned >= position, f"position {position} is not reached")

    def wait_until_processed(self, records: int) -> None:
        """Wait until the keyed step has published so many records in this process."""
        _wait(lambda: self.processed() >= records, f"{records} records are not processed")

    def processed(self) -> int:
        """How many records the keyed step has published; an error if the job has ended."""
        result = self.client.get_job_execution_result()
        if result.done():
            result.result()
            msg = "the job has ended"
            raise RuntimeError(msg)
        return sum(one.records_in for one in self.keyed_reports())

    def keyed_reports(self) -> list[MicroBatchReport]:
        return [one for one in self.client.get_micro_batches() if KEYED_STEP in one.stage_name]

    def checkpoint(self) -> tuple[CheckpointRecord, int]:
        """Take a checkpoint now; return its record, and where the source stood in it."""
        # The public way, through the job's directory, is polled: the barrier would come too late.
        run = cast("LaunchedJob", self.client._job)._run
        completed: Completed = run.checkpoint().result(PATIENCE_S)
        path = Path(completed.path) / "_metadata"
        metadata = decode_metadata(path.read_bytes(), str(path))
        position = next(
            sum(o.source.positions.values()) for o in metadata.operators if o.source is not None
        )
        _wait(lambda: self._record(completed.checkpoint) is not None, "there is no record of it")
        record = self._record(completed.checkpoint)
        assert record is not None
        return record, position

    def recoveries(self) -> list[Recovery]:
        return self.history.recoveries()

    def cancel(self) -> None:
        self.client.cancel()
        cast("LaunchedJob", self.client._job).wait_for_end(60.0)

    def _record(self, checkpoint: int) -> CheckpointRecord | None:
        record = self.history.checkpoint(checkpoint)
        return record if record and record.status is RecordStatus.COMPLETED else None


def _configuration(
    shape: StateShape, directory: Path, settings: Mapping[str, str]
) -> Configuration:
    config = Configuration()
    chosen = {
        "state.backend.type": shape.backend,
        "penstock.job-id": JOB_ID,
        "penstock.micro-batch.initial-records": str(BUILD_AT_ONCE),
        "penstock.micro-batch.max-records": str(BUILD_AT_ONCE),
        "penstock.micro-batch.target-duration": "10 min",
        # Checkpoints are on, and come only when they are asked for.
        "execution.checkpointing.interval": "10 h",
        "execution.checkpointing.dir": str(directory),
        **settings,
    }
    for key, value in chosen.items():
        config.set_string(key, value)
    return config


def _wait(is_true: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > end:
            msg = f"{otherwise} after {PATIENCE_S:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.005)
