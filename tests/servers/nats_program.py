"""The job that reads a stream and is killed: `python -m tests.servers.nats_program SPEC.json`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.connectors.nats.receiver import NatsReceiver
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from penstock.datastream.connectors.nats import NatsSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import run_inline

KILL_AT_ACK = "PENSTOCK_TEST_KILL_AT_ACK"
"""`when:nth`: the process dies before, in the middle of (`half`) or after an acknowledgement."""


class Spec(msgspec.Struct, frozen=True):
    """What the job reads, and where its files are."""

    directory: str
    server: str
    stream: str
    interval_ms: int = 60
    parallelism: int = 2

    @property
    def output(self) -> Path:
        """Where lines of `key,count,number` appear."""
        return Path(self.directory) / "output"


class Counts(KeyedProcessFunction[int, str, str]):
    """Counts the messages of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f"{key_of(value)},{count},{value}"


def key_of(value: str) -> int:
    """Spread the numbers over a few keys."""
    return int(value) % 7


def build(spec: Spec) -> StreamExecutionEnvironment:
    """Make the program."""
    root = Path(spec.directory)
    settings = {
        "penstock.job-id": "nats",
        "execution.checkpointing.dir": str(root / "checkpoints"),
        "execution.checkpointing.interval": f"{spec.interval_ms} ms",
        "penstock.work-dir": str(root / "work"),
        "penstock.state.local-dir": str(root / "local"),
        "penstock.micro-batch.max-records": "400",
        "penstock.source.poll-interval": "10 ms",
        "restart-strategy.type": "none",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    run_inline(env)
    env.set_parallelism(spec.parallelism)
    source = (
        NatsSource.builder()
        .set_servers(spec.server)
        .set_stream(spec.stream)
        .set_durable("counts")
        .set_bounded()
        .build()
    )
    sink = (
        FileSink.for_row_format(spec.output, Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
        .uid("orders")
        .key_by(key_of, Types.LONG())
        .process(Counts(), Types.STRING())
        .uid("counts")
        .sink_to(sink)
        .uid("files")
    )
    return env


def die_at_ack(when: str, nth: int) -> None:
    """Let this process be killed around one of its acknowledgements."""
    acknowledge, calls = NatsReceiver.acknowledge, 0

    def deadly(self: NatsReceiver, handles: Sequence[Any]) -> bool:
        nonlocal calls
        calls += 1
        if calls < nth:
            return acknowledge(self, handles)
        if when == "half":
            acknowledge(self, handles[: len(handles) // 2])
        elif when == "after":
            acknowledge(self, handles)
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    NatsReceiver.acknowledge = deadly  # type: ignore[method-assign]


def main(path: Path) -> None:
    """Run it until the stream's end."""
    if where := os.environ.get(KILL_AT_ACK):
        when, nth = where.split(":")
        die_at_ack(when, int(nth))
    build(msgspec.json.decode(path.read_bytes(), type=Spec)).execute("nats")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
