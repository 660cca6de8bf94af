"""Jobs for tests of commands: jobs that run in this process, and job directories without a job."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner, Result

from penstock.checkpoint.storage.job_dir import JobDir, JobFacts
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted, JobEnded
from penstock.cli.main import main
from penstock.common import Configuration, JobClient, Types, WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.ids import JobKey
from penstock.recovery.lease import Owner, machine_id, process_start_time
from penstock.testing.inline import run_inline
from tests.unit.support import eventually

COUNT = """
import sys, time
from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing.inline import run_inline

class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value, ctx):
        time.sleep(float(sys.argv[3]))
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        yield f"{value % 10} {n}"

env = run_inline(StreamExecutionEnvironment.get_execution_environment())
env.enable_checkpointing(50)
numbers = NumberSequenceSource(1, int(sys.argv[2]))
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
(
    env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    .key_by(lambda n: n % 10, Types.LONG())
    .process(Count(), Types.STRING())
    .uid("count")
    .sink_to(sink)
)
env.execute("count")
print("done")
"""


class Remember(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
        self.by_parity = runtime_context.get_map_state(
            MapStateDescriptor("by parity", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.seen.update((self.seen.value() or 0) + 1)
        self.by_parity.put(value % 2, value)
        yield value


def slowly(number: int) -> int:
    time.sleep(0.001)
    return number


def endless_job(directory: Path, name: str = "endless", **settings: str) -> JobClient:
    """Start a job in this process that runs until it is cancelled or stopped."""
    configuration = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(directory),
            "penstock.micro-batch.max-records": "20",
            **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()},
        }
    )
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    numbers = NumberSequenceSource(1, 10_000_000)
    # Slow before the exchange, or barriers would wait behind the records in the channel.
    stream = (
        env.set_parallelism(2)
        .from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
        .map(slowly, Types.LONG())
    )
    keyed = stream.key_by(lambda n: n % 10, Types.LONG()).process(Remember(), Types.LONG())
    keyed.uid("remember").sink_to(DiscardingSink())
    return env.execute_async(name)


def end(client: JobClient) -> None:
    """Cancel a job and wait for its end."""
    client.cancel()
    eventually(lambda: client.get_job_execution_result().done())


def penstock(*args: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def json_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


def job_directory(
    directory: Path,
    key: str,
    *,
    name: str | None = None,
    ended: JobStatus | None = None,
    savepoint: str | None = None,
) -> JobDir:
    """Create the directory of a job that was started once, and ended or not."""
    job = JobDir(directory, JobKey(key))
    journal = Journal(job.storage, key)
    journal.append(AttemptStarted("a1", 1_000.0, "somewhere", 1))
    if ended is not None:
        journal.append(JobEnded.of("a1", ended, 2_000.0, savepoint))
    job.write_facts(JobFacts(name or key, 1_000.0))
    return job


def set_driver(job: JobDir, pid: int, beat: float | None = None) -> None:
    """Write a lease of a process on this machine."""
    owner = Owner(
        socket.gethostname(),
        machine_id(),
        pid,
        process_start_time(pid) or 0,
        "a1",
        beat or time.time(),
    )
    job.storage.replace(job.driver.name, msgspec.json.encode(owner))
