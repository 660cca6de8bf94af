"""What `make demo` runs: word count over a real socket, on Spark, checked by a recount.

A server in this process sends generated prose in bursts over about ten seconds. The job counts
its words. At the end the counts are compared with a count made of what was sent, by hand.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table
from word_count import Count

from penstock.common import Configuration, JobClient, Types
from penstock.connectors.collect import CollectSink
from penstock.datastream import StreamExecutionEnvironment

LINES = 2_000
BURSTS = 20
SECONDS = 10.0
SEED = 7

console = Console(highlight=False)


class ProseServer:
    """A TCP server that sends its text to the first client, and remembers what it sent."""

    def __init__(self) -> None:
        self.sent = Counter[str]()
        self.lines = 0
        self.bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ProseServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        text = list(prose(LINES, random.Random(SEED)))
        client, _ = self._listener.accept()
        with client:
            for burst in range(BURSTS):
                part = text[burst * LINES // BURSTS : (burst + 1) * LINES // BURSTS]
                data = "".join(f"{line}\n" for line in part).encode()
                client.sendall(data)
                self.lines += len(part)
                self.bytes += len(data)
                self.sent.update(word for line in part for word in line.split())
                time.sleep(SECONDS / BURSTS)


def prose(lines: int, chance: random.Random) -> Iterator[str]:
    """Make lines of some ten words; a few words are frequent and most are rare."""
    syllables = ["ba", "do", "fe", "gi", "hu", "ka", "lo", "me", "ni", "pu", "ra", "so", "te"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 3))) for _ in range(1_000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    for _ in range(lines):
        yield " ".join(chance.choices(words, weights, k=chance.randint(6, 14)))


class Updates:
    """All counts the job published, in the order they came."""

    def __init__(self) -> None:
        self.seen = Counter[tuple[str, int]]()
        self.last: dict[str, int] = {}

    def take(self, updates: list[tuple[str, int]]) -> None:
        for word, count in updates:
            self.seen[word, count] += 1
            self.last[word] = count

    def lost_and_doubled(self, sent: Counter[str]) -> tuple[int, int]:
        """Compare: a word sent n times must have been counted 1, 2, … n, each once."""
        due = {(word, k + 1) for word, n in sent.items() for k in range(n)}
        lost = len(due - self.seen.keys())
        doubled = sum(n - (update in due) for update, n in self.seen.items())
        return lost, doubled


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as made, ProseServer() as server:
        directory, updates = Path(made), Updates()
        console.print(f"a server on 127.0.0.1:{server.port} has {LINES} lines to send")
        console.print("starting Spark (a JVM and its first job: some ten seconds) …\n")
        began = time.monotonic()
        with spark_noise_into(directory / "spark.log"):
            client = start(server.port, directory, updates)
            console.print(f"Spark is up after {time.monotonic() - began:.0f} s; the words come\n")
            state_bytes = show_progress(client, directory)
            client.get_job_execution_result().result()
            took = time.monotonic() - began
            stop_spark()
        console.print(f"\nall of it took {took:.0f} s")
        return report(client.get_micro_batches(), server, updates, directory, state_bytes)


def start(port: int, directory: Path, updates: Updates) -> JobClient:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "penstock.work-dir": str(directory / "work"),
                "penstock.ingestion.dir": str(directory / "ingestion"),
                "penstock.state.local-dir": str(directory / "state"),
                "spark.local.dir": str(directory / "spark"),
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory}",
            }
        )
    )
    (
        env.socket_text_stream("127.0.0.1", port)
        .flat_map(str.split, Types.STRING())
        .key_by(lambda word: word, Types.STRING())
        .process(Count(), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .sink_to(CollectSink(updates.take))
    )
    return env.execute_async("demo")


def show_progress(client: JobClient, directory: Path) -> int:
    """Print each micro-batch as it is published; return how large the state was seen to be."""
    shown = state_bytes = 0
    result = client.get_job_execution_result()
    while not result.done() or shown < len(client.get_micro_batches()):
        for batch in client.get_micro_batches()[shown:]:
            console.print(
                f"  [cyan]stage {batch.stage}[/]  micro-batch {batch.batch:>3}  "
                f"{batch.records_in:>5} records in  {batch.seconds * 1000:>5.0f} ms  "
                f"[dim]{batch.stage_name}[/]",
                no_wrap=True,
                overflow="ellipsis",
            )
            shown += 1
        stores = (directory / "state").rglob("data.mdb")
        state_bytes = max(state_bytes, sum(p.stat().st_size for p in stores if p.exists()))
        time.sleep(0.1)
    return state_bytes


def report(
    batches: list[Any], server: ProseServer, updates: Updates, directory: Path, state_bytes: int
) -> int:
    top = Table("word", "penstock", "recount", title="the most frequent words")
    for word, count in server.sent.most_common(8):
        top.add_row(word, str(updates.last.get(word)), str(count))
    console.print()
    console.print(top)

    lost, doubled = updates.lost_and_doubled(server.sent)
    agree = lost == doubled == 0 and updates.last == dict(server.sent)
    console.print(
        f"sent {server.lines} lines, {server.sent.total()} words, {len(server.sent)} different; "
        f"published {updates.seen.total()} counts\n"
        f"[{'green' if agree else 'red'} bold]the counts and the recount "
        f"{'agree' if agree else 'DO NOT AGREE'}: lost {lost}, doubled {doubled}[/]"
    )
    console.print("\nwhat happened:")
    points = Table.grid(padding=(0, 1))
    for sentence in story(batches, directory, state_bytes):
        points.add_row("-", sentence)
    console.print(points)
    return 0 if agree else 1


def story(batches: list[Any], directory: Path, state_bytes: int) -> Iterator[str]:
    log = sum(p.stat().st_size for p in (directory / "ingestion").rglob("*.segment"))
    per_stage = Counter(batch.stage for batch in batches)
    shares = ", ".join(f"{n} of stage {stage}" for stage, n in sorted(per_stage.items()))
    again = sum(batch.tries - 1 for batch in batches)
    left = sum(1 for p in (directory / "work").rglob("*") if p.is_file())
    yield (
        f"The driver wrote each line from the socket into an ingestion log ({log} bytes), with an "
        "fsync, before any task saw it: a socket cannot be asked twice."
    )
    yield (
        "Stage 0 read ranges of that log, stage 1 split lines into words, stage 2 counted. "
        "Between them went Arrow segments with a slice for each subtask of the next stage, a word "
        "to the one that owns it. The stages ran side by side, each micro-batch one Spark job."
    )
    yield (
        f"Tasks only staged what they made. The driver published {len(batches)} manifests "
        f"({shares}): with its manifest a micro-batch counts, before it nothing of it does. "
        f"{again} had to be tried again."
    )
    yield (
        f"The counts lived in LMDB, next to the function ({state_bytes // 1024} KiB at most), as "
        "a cache of the state deltas in the job's directory."
    )
    yield (
        "The server hung up, which is the end of the input: the job ended by itself and left "
        f"{left} files in its directory."
    )


@contextmanager
def spark_noise_into(path: Path) -> Iterator[None]:
    """Give the JVM another standard error; show the end of what it said if something fails."""
    sys.stderr.flush()
    mine = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    before, sys.stderr = sys.stderr, os.fdopen(mine, "w", buffering=1, closefd=False)
    try:
        yield
    except BaseException:
        console.print(path.read_text(errors="replace")[-2000:], style="dim", markup=False)
        raise
    finally:
        sys.stderr = before
        os.dup2(mine, 2)
        os.close(mine)


def stop_spark() -> None:
    """Stop Spark and wait until its JVM is gone, so that nothing is left of its files."""
    session = SparkSession.getActiveSession()
    if session is not None:
        jvm = session.sparkContext._gateway.proc
        session.stop()
        jvm.stdin.close()
        jvm.wait(30)


if __name__ == "__main__":
    sys.exit(main())
