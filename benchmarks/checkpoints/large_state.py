"""A job with a state of configurable size: one value of random bytes per key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.checkpoints.gated_source import Gate, GatedSource, gate_named
from benchmarks.running_job import RunningJob, wait_until
from penstock.checkpoint.history import CheckpointStats, Recovery
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.storage_url import Location
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.discard import DiscardingSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.job.reports import MicroBatchReport
from penstock.storage.storages import storage_at

MB = 1_000_000
KEYED_STEP = "store"
JOB_ID = "large-state"
GATE = "large-state"
BUILD_AT_ONCE = 25_000
PIECES = 8
"""Micro-batches that a change is spread over."""


@dataclass(frozen=True)
class StateShape:
    """The size of the state, and its directory."""

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


class LargeState(RunningJob):
    """The job while it runs in this process, with its source at a gate."""

    def __init__(self, shape: StateShape, directory: Location, settings: Mapping[str, str]) -> None:
        self.shape = shape
        self.gate: Gate = gate_named(GATE)
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
        super().__init__(env.execute_async("large state"), directory, JOB_ID)

    def build(self) -> None:
        """Put a value under every key."""
        self.gate.let_through(self.shape.keys, BUILD_AT_ONCE)
        self.wait_until_processed(self.shape.keys)

    def change(self, records: int) -> int:
        """Start to update this many keys; return the position after the last update."""
        at_once = min(BUILD_AT_ONCE, max(1, records // PIECES))
        return self.gate.let_through(records, at_once)

    def wait_until_planned(self, position: int) -> None:
        wait_until(lambda: self.gate.planned >= position, f"position {position} is not reached")

    def wait_until_processed(self, records: int) -> None:
        """Wait until the keyed step has published so many records in this process."""
        wait_until(
            lambda: self.processed(KEYED_STEP) >= records, f"{records} records are not processed"
        )

    def keyed_reports(self) -> list[MicroBatchReport]:
        return self.reports_of(KEYED_STEP)

    def checkpoint_and_position(self) -> tuple[CheckpointStats, int]:
        """Take a checkpoint now; return its record, and where the source stood in it."""
        record, directory = self.checkpoint()
        data = storage_at(directory).read("_metadata")
        metadata = decode_metadata(data, str(directory))
        position = next(
            sum(o.source.positions.values()) for o in metadata.operators if o.source is not None
        )
        return record, position

    def recoveries(self) -> list[Recovery]:
        return self.history.recoveries()


def _configuration(
    shape: StateShape, directory: Location, settings: Mapping[str, str]
) -> Configuration:
    config = Configuration()
    chosen = {
        "state.backend.type": shape.backend,
        "penstock.job-id": JOB_ID,
        "penstock.micro-batch.initial-records": str(BUILD_AT_ONCE),
        "penstock.micro-batch.max-records": str(BUILD_AT_ONCE),
        "penstock.micro-batch.target-duration": "10 min",
        # Checkpoints are enabled, and taken only on request.
        "execution.checkpointing.interval": "10 h",
        "execution.checkpointing.dir": str(directory),
        **settings,
    }
    for key, value in chosen.items():
        config.set_string(key, value)
    return config
