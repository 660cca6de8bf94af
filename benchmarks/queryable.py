"""Reads of queryable state over HTTP beside a job that takes a checkpoint every second.

    python -m benchmarks.queryable [--keys N] [--seconds S] [--backend NAME]

The job has one core; `penstock serve` and the readers share the other one. Reads come at a fixed
rate, however long answers take, and their latency counts from when they were due. The job's
throughput is measured in turns with and without reads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

JOB = "queryable"
_JOB_CORE, _SERVER_CORE = 0, 1
_CONNECTIONS = 16
_PATIENCE_S = 900.0
SERVE = os.environ.get("BENCH_SERVE", "-m penstock.cli.main").split()
_REPORT_S = 0.25


# -- the job, in a process of its own ---------------------------------------------------------


def run_job(directory: Path, backend: str, keys: int) -> None:
    """Count how often each key has come, without end."""
    from penstock.common import Configuration, Types, WatermarkStrategy
    from penstock.datastream import StreamExecutionEnvironment
    from penstock.datastream.connectors import DiscardingSink
    from penstock.datastream.connectors.number_seq import NumberSequenceSource
    from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
    from penstock.datastream.state import ValueStateDescriptor
    from penstock.testing.inline import run_inline

    class Count(KeyedProcessFunction[int, int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            descriptor = ValueStateDescriptor("count", Types.LONG())
            descriptor.set_queryable("count")
            self.count = runtime_context.get_state(descriptor)

        def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
            self.count.update((self.count.value() or 0) + 1)
            return iter(())

    settings = {
        "execution.checkpointing.dir": str(directory),
        "execution.checkpointing.interval": "1 s",
        "state.backend.type": backend,
        "penstock.job-id": JOB,
        "penstock.micro-batch.target-duration": "500 ms",
    }
    configuration = Configuration.from_dict(settings)
    env = run_inline(StreamExecutionEnvironment.get_execution_environment(configuration))
    stream = env.set_parallelism(1).from_source(
        NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "numbers"
    )
    # Neighbours of the sequence are far apart as keys.
    counted = stream.key_by(lambda n: n * 2_654_435_761 % keys, Types.LONG())
    counted.process(Count(), Types.LONG()).uid("count").sink_to(DiscardingSink())
    client = env.execute_async(JOB)
    while True:
        time.sleep(_REPORT_S)
        reports = [r for r in client.get_micro_batches() if "KEYED" in r.stage_name]
        records = sum(report.records_in for report in reports)
        report = Path(directory / "report.json.new")
        report.write_text(json.dumps({"records": records, "time": time.time()}))
        report.replace(directory / "report.json")


# -- the readers, in a process of their own ---------------------------------------------------


async def _read_at_rate(port: int, keys: int, rate: float, seconds: float) -> dict[str, Any]:
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    latencies: list[float] = []
    ages: list[float] = []
    failures: list[str] = []
    checkpoints: set[int] = set()

    async def read(due: float) -> None:
        reader, writer = await free.get()
        key = random.randrange(keys)
        path = f"/v1/jobs/{JOB}/state/count/count?key={key}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
        body = await reader.readexactly(length)
        latencies.append(time.perf_counter() - due)
        free.put_nowait((reader, writer))
        if not head.startswith(b"HTTP/1.1 200"):
            failures.append(body.decode()[:200])
            return
        if len(latencies) % 20 == 0:
            answer = json.loads(body)
            assert answer["keys"][0]["entries"][0]["key"] == key
            ages.append(answer["age"])
            checkpoints.add(answer["checkpoint"])

    began, cpu = time.perf_counter(), time.process_time()
    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(read(due)))
    await asyncio.gather(*tasks)
    took = time.perf_counter() - began
    latencies.sort()
    return {
        "rate": len(latencies) / took,
        "seconds": took,
        "reader_cpu_s": time.process_time() - cpu,
        "p50_ms": 1000 * latencies[len(latencies) // 2],
        "p99_ms": 1000 * latencies[len(latencies) * 99 // 100],
        "max_ms": 1000 * latencies[-1],
        "failures": failures[:3],
        "failed": len(failures),
        "age_ms": statistics.mean(ages) if ages else None,
        "checkpoints": len(checkpoints),
    }


# -- both together ----------------------------------------------------------------------------


def _start(core: int, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = ["taskset", "-c", str(core), sys.executable, *arguments]
    return subprocess.Popen(command, text=True, **options)


def _records(directory: Path) -> tuple[int, float]:
    report = json.loads((directory / "report.json").read_text())
    return report["records"], report["time"]


def _throughput(directory: Path, seconds: float) -> float:
    before = _records(directory)
    time.sleep(seconds)
    after = _records(directory)
    return (after[0] - before[0]) / (after[1] - before[1])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_for_keys(directory: Path, keys: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if (directory / "report.json").exists() and _records(directory)[0] > keys * 1.2:
            time.sleep(3)  # until they are in a checkpoint
            return
        time.sleep(0.5)
    message = "the job is too slow"
    raise RuntimeError(message)


def measure(backend: str, keys: int, seconds: float, rate: float, rounds: int) -> dict[str, Any]:
    """Return the latencies of reads, and the job's throughput with and without them."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        environment = {**os.environ, "TMPDIR": name}
        job = _start(
            _JOB_CORE, "-m", "benchmarks.queryable", "--job", name, backend, str(keys),
            env=environment,
        )  # fmt: skip
        server = _start(
            _SERVER_CORE, *SERVE, "serve", "--dir", name, "--port", "0",
            stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split()[0].rpartition(":")[2])
            _wait_for_keys(directory, keys)
            _reads(port, keys, rate, 3.0)  # opens the checkpoint, and warms the cache
            alone, beside, reads = [], [], []
            for _ in range(rounds):
                alone.append(_throughput(directory, seconds))
                _reads(port, keys, rate, 3.0)  # after a pause in the reads
                before, cpu = _records(directory), _cpu_s(server.pid)
                reads.append(_reads(port, keys, rate, seconds))
                reads[-1]["server_cpu_s"] = _cpu_s(server.pid) - cpu
                after = _records(directory)
                beside.append((after[0] - before[0]) / (after[1] - before[1]))
        finally:
            for process in (server, job):
                process.kill()
                process.wait()
        return {
            "backend": backend,
            "keys": keys,
            "job_alone": statistics.median(alone),
            "job_beside_reads": statistics.median(beside),
            "ratio": statistics.median(beside) / statistics.median(alone),
            "ratios": [round(b / a, 3) for a, b in zip(alone, beside, strict=True)],
            "reads": reads,
        }


def _reads(port: int, keys: int, rate: float, seconds: float) -> dict[str, Any]:
    arguments = ["--reads", str(port), str(keys), str(rate), str(seconds)]
    reader = _start(_SERVER_CORE, "-m", "benchmarks.queryable", *arguments, stdout=subprocess.PIPE)
    found, _ = reader.communicate()
    result: dict[str, Any] = json.loads(found)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both backends, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", choices=["hashmap", "rocksdb"])
    parser.add_argument("--job", nargs=3)
    parser.add_argument("--reads", nargs=4)
    options = parser.parse_args(arguments)
    if options.job is not None:
        run_job(Path(options.job[0]), options.job[1], int(options.job[2]))
    elif options.reads is not None:
        port, keys, rate, seconds = options.reads
        print(
            json.dumps(
                asyncio.run(_read_at_rate(int(port), int(keys), float(rate), float(seconds)))
            )
        )
    else:
        backends = [options.backend] if options.backend else ["hashmap", "rocksdb"]
        for backend in backends:
            found = measure(backend, options.keys, options.seconds, options.rate, options.rounds)
            print(json.dumps(found, indent=2), flush=True)


if __name__ == "__main__":
    main()
