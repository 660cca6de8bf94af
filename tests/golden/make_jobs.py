"""Makes golden job directories: `python -m tests.golden.make_jobs [NAME ...]`.

A golden directory is what a job left when its driver was killed (or ended) with an older version of
the code. `tests/compatibility` copies each one to the place where it was made, starts the same
program from it, and asserts that it goes on exactly.

Existing directories are never made again: they are the proof that what was written then can be read
now. So this script refuses a name that is there. When a persisted format changes, the change comes
with a new generation: raise `GENERATION`, run this script, and commit the new directories beside
the old ones. The tests run over all generations.

The programs are in `tests.golden.programs`, for this script and for the tests, and use the public
API only. A program may be added; one that has a golden directory must not be changed in a way that
would not be compatible for a user's job.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from penstock.checkpoint.storage import journal
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.connectors.postgres.transactions.ledger import ledger_ddl
from penstock.crash_points import CRASH_AT
from penstock.errors import PenstockError
from penstock.ids import JobKey
from penstock.recovery.control import Cancel, Channels, Checkpoint, Control, Metrics, Savepoint
from penstock.testing.servers.kafka_broker import KafkaBroker
from penstock.testing.servers.postgres_server import PostgresServer
from tests.golden.programs import counts, overtaken, received, servers, states
from tests.golden.programs.running import HOME, Run

GENERATION = "v3"
JOBS = Path(__file__).parent / "jobs"
ROOT = Path(__file__).parents[2]
_SECONDS = 40.0
_SERVER = "server:"
"""What settings begin with that say where a server is."""

Program = Callable[[Run], object]


def _stopped(run: Run) -> None:
    client = states.build(run).execute_async("states")
    _wait_for(lambda: len(run.lines("book")) > 60)
    client.stop_with_savepoint(False, str(run.directory / "savepoints")).result()
    client.get_job_execution_result().result()


def _shortened(run: Run) -> None:
    """Fail to start: the source has not what comes behind the checkpoint."""
    counts.build(run, cut=10).execute("counts")


def _failing(run: Run) -> None:
    counts.build(run, fails_on=(320,), cut=340).execute("counts")


def _summarised(run: Run) -> None:
    # A thousand entries would be too many files.
    journal.Journal.__init__.__defaults__ = (4,)
    counts.build(run, cut=counts.NUMBERS).execute("counts")


def _canceled(run: Run) -> None:
    """Ask for all there is to ask for, in vain once, and cancel."""
    client = counts.build(run).execute_async("counts")
    _wait_for(lambda: len(run.lines("counts")) > 200)
    asked = Control(JobDir(run.checkpoints, JobKey("counts")))
    (run.directory / "no-directory").touch()
    for request in (
        Checkpoint(),
        Savepoint(str(run.directory / "no-directory")),
        Savepoint(),
        Channels(),
        Metrics(),
    ):
        answer = asked.submit(request)
        _wait_for(lambda answer=answer: asked.answer(answer) is not None)  # type: ignore[misc]
    asked.submit(Cancel())
    with suppress(PenstockError):
        client.get_job_execution_result().result()


def _finished(run: Run) -> None:
    counts.build(replace(run, more=True)).execute("counts")


PROGRAMS: dict[str, Program] = {
    "states": lambda run: states.build(run).execute("states"),
    "stopped": _stopped,
    "overtaken": lambda run: overtaken.build(run).execute("overtaken"),
    "socket": received.run_socket_job,
    "broker": received.broker_job,
    "counts": lambda run: counts.build(run).execute("counts"),
    "shortened": _shortened,
    "failing": _failing,
    "summarised": _summarised,
    "canceled": _canceled,
    "finished": _finished,
    "to-kafka": lambda run: servers.to_kafka(run).execute("to-kafka"),
    "to-postgres": lambda run: servers.to_postgres(run).execute("to-postgres"),
}


def _wait_for(told: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not told():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


def die(program: str, directory: Path, at: str, **settings: str) -> None:
    """Run a program in a process of its own, which is killed at a crash point."""
    code = start(program, directory, {CRASH_AT: at}, **settings)
    if code != -signal.SIGKILL:
        message = f"{program} in {directory} ended with {code} instead of dying at {at}"
        raise AssertionError(message)


def ends(program: str, directory: Path, code: int, **settings: str) -> None:
    """Run a program in a process of its own, which ends by itself with this code."""
    if (found := start(program, directory, {}, **settings)) != code:
        message = f"{program} in {directory} ended with {found}, and not with {code}"
        raise AssertionError(message)


def start(program: str, directory: Path, environment: dict[str, str], **settings: str) -> int:
    """Run a program in a process of its own, and return how it ended."""
    keys = {key: key.replace("__", ".").replace("_", "-") for key in settings}
    given = msgspec.json.encode({keys[key]: text for key, text in settings.items()}).decode()
    command = [sys.executable, "-m", "tests.golden.make_jobs", "--run", program, str(directory)]
    return subprocess.run(
        [*command, given],
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=_SECONDS,
        check=False,
    ).returncode


# -- the golden directories ---------------------------------------------------------------------


def hashmap(directory: Path) -> None:
    """Every kind of state; output of the last checkpoint is not committed."""
    die(
        "states",
        directory,
        "coordinator.completed:2",
        state__backend__type="hashmap",
        penstock__state__compact_after_deltas="2",
    )


def rocksdb(directory: Path) -> None:
    """The same, incrementally, with tables that several checkpoints share."""
    die(
        "states",
        directory,
        "coordinator.completed:2",
        state__backend__type="rocksdb",
        execution__checkpointing__incremental="true",
    )


def memory(directory: Path) -> None:
    """The same, with the state in the metadata."""
    die("states", directory, "coordinator.completed:2", state__backend__type="memory")


def savepoint(directory: Path) -> None:
    """Every kind of state in a savepoint behind which the job was stopped."""
    ends("stopped", directory, 0)


def in_flight(directory: Path) -> None:
    """An unaligned checkpoint that holds what its barriers overtook."""
    die("overtaken", directory, "coordinator.completed:2")


def socket_lines(directory: Path) -> None:
    """An ingestion log with lines that no server will send again."""
    die("socket", directory, "coordinator.completed:2")


def acknowledged(directory: Path) -> None:
    """A broker was told to forget; output to collect was handed over, and more waits for that."""
    die("broker", directory, "coordinator.completed:2")


def failed(directory: Path) -> None:
    """A driver was killed, the next one could not start, and the next one failed."""
    die("counts", directory, "coordinator.completed:2")
    ends("shortened", directory, 1)
    ends("failing", directory, 1)


def summary(directory: Path) -> None:
    """A summary stands for most of the journal."""
    die("counts", directory, "coordinator.completed:1")
    die("summarised", directory, "coordinator.completed:1")


def canceled(directory: Path) -> None:
    """A job that was asked for all there is to ask for, and cancelled."""
    ends("canceled", directory, 0)


def finished(directory: Path) -> None:
    """A job that came to its end, with barriers that hold up nothing."""
    ends("finished", directory, 0, execution__checkpointing__mode="AT_LEAST_ONCE")


def kafka(directory: Path) -> None:
    """Staged records that a completed checkpoint holds and nobody has published."""
    _into_kafka(directory, "coordinator.completed:2")


def kafka_published(directory: Path) -> None:
    """Records that are published, of which only the marker in the broker knows."""
    _into_kafka(directory, "sink.committed:2")


def postgres_rows(directory: Path) -> None:
    """Rows that a completed checkpoint holds and nobody has written."""
    _into_postgres(directory, "coordinator.completed:2")


def postgres_prepared(directory: Path) -> None:
    """The same, in prepared transactions."""
    _into_postgres(directory, "coordinator.completed:2")


def postgres_committed(directory: Path) -> None:
    """Rows that are committed, of which only the ledger in the database knows."""
    _into_postgres(directory, "sink.committed:2")


def _into_kafka(directory: Path, at: str) -> None:
    topic = f"golden-{directory.name}"
    with KafkaBroker() as broker:
        broker.create_topic(topic, 1)
        die("to-kafka", directory, at, **{"server:kafka": broker.bootstrap})
        (step,) = (directory / "checkpoints" / "to-kafka" / "connectors" / "a1").iterdir()
        job_instance = (directory / "checkpoints" / "to-kafka" / "birth").read_text()
        group = f"golden-to-kafka-{step.name}-{job_instance}"
        servers.keep_kafka(broker.bootstrap, topic, group, directory / servers.LEFT)


def _into_postgres(directory: Path, at: str) -> None:
    with PostgresServer() as server:
        dsn = server.create_database("golden")
        servers.run_sql(dsn, servers.TABLE)
        die("to-postgres", directory, at, **{"server:postgres": dsn})
        servers.keep_postgres(dsn, ledger_ddl("penstock"), directory / servers.LEFT)


GOLDEN: dict[str, Callable[[Path], None]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        hashmap,
        rocksdb,
        memory,
        savepoint,
        in_flight,
        socket_lines,
        acknowledged,
        failed,
        summary,
        canceled,
        finished,
        kafka,
        kafka_published,
        postgres_rows,
        postgres_prepared,
        postgres_committed,
    )
}


def _remove_empty_directories(directory: Path) -> None:
    for place, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):
            Path(place).rmdir()


KEEPS_WORK = {"hashmap"}


def make(name: str) -> Path:
    """Make one golden directory; one that is there is left alone."""
    kept = JOBS / GENERATION / name
    if kept.exists():
        message = f"{kept} is there, and is never made again: a new format gets a new generation"
        raise SystemExit(message)
    directory = HOME / GENERATION / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    GOLDEN[name](directory)
    # A host's copy of the state is only a cache, and what an attempt works in is of no use to the
    # next one: it is kept once, for its manifests.
    for left in ("local",) if name in KEEPS_WORK else ("local", "work"):
        shutil.rmtree(directory / left, ignore_errors=True)
    for exceptions in directory.glob("checkpoints/*/history/exceptions.jsonl"):
        told = exceptions.read_text().replace(str(ROOT), "/opt/penstock")
        exceptions.write_text(told.replace(sys.prefix, "/opt/python"))
    _remove_empty_directories(directory)  # git does not keep them
    shutil.copytree(directory, kept)
    shutil.rmtree(directory)
    return kept


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--run"]:
        program, directory, settings = arguments[1:]
        sys.argv = ["golden.py", program]  # job.json tells it
        given = msgspec.json.decode(settings, type=dict[str, str])
        addresses = {
            key.removeprefix(_SERVER): given.pop(key)
            for key in list(given)
            if key.startswith(_SERVER)
        }
        PROGRAMS[program](Run(Path(directory), settings=given, servers=addresses))
        return
    for name in arguments or [n for n in GOLDEN if not (JOBS / GENERATION / n).exists()]:
        print(name, make(name))


if __name__ == "__main__":
    main(sys.argv[1:])
