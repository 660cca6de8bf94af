"""Soak: `python -m tests.soak --minutes 20` (`make soak MINUTES=20`).

Runs windows, timers, a watched directory, Kafka and files on Spark with ten checkpoints per second
and clients that send requests all the time. At the end it prints how fast memory, open files,
disk, checkpoint size and checkpoint duration have grown after a warm-up.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock.checkpoint.coordinator.request_decider import RequestKind
from penstock.checkpoint.history import CheckpointStatus, History
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.ids import JobKey
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.kafka_files import connector_jars
from tests.soak.slope import LIMIT, slope_of

ROOT = Path(__file__).parents[2]
JOB = "soak"
SAMPLE_S = 5.0
HEAP_EVERY = 6
"""How many samples there are for each of the JVM's heap, which takes a full collection."""
WARM_UP = 0.5
"""The part of the run whose samples do not count."""
KEPT_S = 20.0
"""How long input files stay, and output files before they are consumed."""

Samples = dict[str, list[tuple[float, float]]]


def settings(directory: Path) -> list[str]:
    """The options of the job."""
    options = {
        "penstock.job-id": JOB,
        "execution.checkpointing.dir": directory / "checkpoints",
        "execution.checkpointing.savepoint-dir": directory / "savepoints",
        "execution.checkpointing.num-retained": 2,
        "penstock.work-dir": directory / "work",
        "penstock.state.local-dir": directory / "local",
        "spark.master": "local[4]",
        "spark.driver.memory": "768m",
        # So that what the process has is not how far its collector has come.
        "spark.driver.extraJavaOptions": "-Xms768m -XX:+AlwaysPreTouch",
        "spark.jars": connector_jars(),
    }
    return [part for key, value in options.items() for part in ("-D", f"{key}={value}")]


def kill(job: subprocess.Popen[bytes]) -> None:
    """End the job with everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def feed(directory: Path, broker: KafkaBroker, is_over: threading.Event) -> None:
    """Write files and messages, and remove what was consumed."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in itertools.count():
        if is_over.wait(0.5):
            return
        lines = "".join(f"k{number * 50 + n:09d}"[-7:] + "\n" for n in range(50))
        hidden = directory / f".{number}.tmp"
        hidden.write_text(lines)
        hidden.rename(directory / "in" / f"{number:09d}.txt")
        for n in range(50):
            producer.produce("soak", f"m{n:05d} {number}".encode())
        producer.poll(0)
        oldest = time.time() - KEPT_S
        for path in (*(directory / "in").glob("*.txt"), *(directory / "out").rglob("part-*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


def send_requests(directory: Path, is_over: threading.Event) -> None:
    """Use the command line as clients do, one request after the other."""
    root = ["--dir", str(directory / "checkpoints")]
    requests = (["list"], ["checkpoints", JOB], ["metrics", JOB], ["savepoint", JOB])
    for command, *arguments in itertools.cycle(requests):
        if is_over.wait(2.0):
            return
        done = penstock(command, *root, *arguments)
        if command == "savepoint" and done.returncode == 0:
            # As its owner does: the job forgets it, too.
            path = done.stdout.splitlines()[-1]
            penstock("savepoint", "--dispose", path, *root)


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def processes(root: int) -> Iterator[tuple[str, int]]:
    """The driver, its JVM and the Python workers."""
    parents: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parts[2]))
    yield "driver", root
    waiting = list(parents[root])
    while waiting:
        pid = waiting.pop()
        waiting += parents[pid]
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name == "java":
                yield "JVM", pid
            elif name.startswith("python"):
                yield "workers", pid


def live_heap_mb(jvm: int) -> float:
    """Collect all garbage of a JVM; return what is left."""
    tool = ["jcmd", str(jvm)]
    subprocess.run([*tool, "GC.run"], capture_output=True, check=True, timeout=60)
    info = subprocess.run(
        [*tool, "GC.heap_info"], capture_output=True, check=True, text=True, timeout=60
    )
    return sum(int(used) for used in re.findall(r"total \d+K, used (\d+)K", info.stdout)) / 1024


def measure(driver: int, directory: Path, *, with_heap: bool = False) -> dict[str, float]:
    """Measure everything once."""
    found: dict[str, float] = defaultdict(float)
    for name, pid in processes(driver):
        if with_heap and name == "JVM":
            with contextlib.suppress(subprocess.CalledProcessError):
                found["live heap of the JVM, MB"] = live_heap_mb(pid)
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/smaps_rollup").read_text()
            # Not pages of files: whether those are private depends on what other programs map.
            own = sum(
                int(line.split()[1])
                for line in status.splitlines()
                if line.startswith("Anonymous:")
            )
            found[f"memory of the {name}, MB"] += own / 1024
            found["open files"] += len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    for name in ("checkpoints", "work", "local"):
        # Not by rglob, which fails if a directory is deleted meanwhile.
        for place, below, names in os.walk(directory / name):
            # Answers to requests stay for an hour, so they grow all the time here; not more than
            # a thousand: tests/unit/recovery/test_control.py.
            below[:] = [one for one in below if one != "control"]
            found["files on disk"] += len(names)
            for file in names:
                with contextlib.suppress(OSError):
                    found[f"disk of {name}, MB"] += Path(place, file).lstat().st_size / 1e6
    recent = History(JobDir(directory / "checkpoints", JobKey(JOB)).storage).checkpoints()[-40:]
    done = [
        one
        for one in recent
        if one.status is CheckpointStatus.COMPLETED and one.kind != RequestKind.SAVEPOINT.value
    ]
    if done:
        found["checkpoint size, bytes"] = sum(one.full_bytes for one in done) / len(done)
        found["checkpoint duration, ms"] = sum(one.duration_s for one in done) / len(done) * 1000
        found["checkpoint id"] = done[-1].id
    return found


def run(minutes: float, console: Console) -> bool:
    """Run for some minutes; return whether nothing grew."""
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as place:
        directory, is_over = Path(place), threading.Event()
        (directory / "in").mkdir()
        with KafkaBroker() as broker, contextlib.ExitStack() as stack:
            broker.create_topic("soak", 2)
            program = [str(ROOT / "tests/soak/program.py"), broker.bootstrap, str(directory)]
            command = [sys.executable, "-m", "penstock.cli.main", "run", *settings(directory)]
            log = stack.enter_context((directory / "job.log").open("wb"))
            job = subprocess.Popen(
                [*command, *program], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
            stack.callback(kill, job)
            clients: list[Callable[[], None]] = [
                lambda: feed(directory, broker, is_over),
                lambda: send_requests(directory, is_over),
            ]
            threads = [threading.Thread(target=client, daemon=True) for client in clients]
            for thread in threads:
                thread.start()
            while job.poll() is None and "checkpoint id" not in measure(job.pid, directory):
                time.sleep(1.0)
            began, taken = time.monotonic(), 0
            while (now := time.monotonic() - began) < minutes * 60:
                if job.poll() is not None:
                    console.print((directory / "job.log").read_text()[-5000:])
                    return False
                measured = measure(job.pid, directory, with_heap=taken % HEAP_EVERY == 0)
                taken += 1
                for name, value in measured.items():
                    samples[name].append((now, value))
                latest = {name: round(of[-1][1], 1) for name, of in samples.items()}
                console.print(f"{now:6.0f} s  {latest}", highlight=False, soft_wrap=True)
                time.sleep(SAMPLE_S)
            is_over.set()
            for thread in threads:
                thread.join(timeout=120)
    return report(samples, minutes * 60, console)


def report(samples: Samples, seconds: float, console: Console) -> bool:
    """Print the slopes; return whether none is above the limit."""
    numbers = [v for _, v in samples.pop("checkpoint id", [])]
    table = Table("quantity", "mean", "growth, % per hour", "±", "")
    is_good = True
    for name, of in samples.items():
        counted = [(t, v) for t, v in of if t >= seconds * WARM_UP]
        if len(counted) < 3:
            continue
        slope = slope_of(counted)
        is_good = is_good and not slope.is_growth
        table.add_row(
            name,
            f"{slope.mean:,.1f}",
            f"{slope.percent_per_hour:+.1f}",
            f"{slope.error:.1f}",
            f"above {LIMIT:g}" if slope.is_growth else "",
        )
    console.print(table)
    if numbers:
        rate = (numbers[-1] - numbers[0]) / seconds
        console.print(f"{numbers[-1]:,.0f} checkpoint ids used, {rate:.1f} per second")
    return is_good


def main(arguments: list[str]) -> int:
    """Soak; the exit code is 1 if something grew or the job failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args(arguments)
    return 0 if run(given.minutes, Console(width=160)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
