"""Jobs in a real S3 server that lose their driver's host: every sink shows every record once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types
from penstock.connectors.two_phase.sink import AlreadyCommitted, TwoPhaseSink
from penstock.connectors.two_phase.transaction_register import TransactionContext
from penstock.datastream import DataStream
from penstock.storage.storages import storage_at
from penstock.testing import ScriptedFailures
from penstock.testing.servers.s3_server import S3Server
from tests.contracts.sink_harness import Case, Make, by_five_functions, collecting, on_a_server
from tests.servers.test_sinks_in_s3 import on_a_new_driver
from tests.unit.job.counting import (
    Program,
    bursts,
    die,
    idle_after,
    launched,
    wait_for_records,
)
from tests.unit.support import eventually

pytestmark = pytest.mark.s3

BUCKET = "sinking"
PADDING = "x" * 20_000
SINKS: list[Any] = [
    collecting,
    by_five_functions,
    on_a_server("kafka", "kafka_sink_case", "exactly_once_case"),
    on_a_server("postgres", "postgres_sink_case", "two_phase_case"),
    on_a_server("postgres", "postgres_sink_case", "single_phase_case"),
]


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    for job in launched:
        job.kill()
    launched.clear()


@pytest.fixture
def in_s3(s3: S3Server, tmp_path: Path) -> dict[str, str]:
    """The settings of a job whose directory is there."""
    s3.create_bucket(BUCKET)
    options = s3.options(retry_timeout="3 s")
    reach = {f"penstock.storage.{name}": value for name, value in options.items()}
    settings = {"execution.checkpointing.dir": str(s3.url(BUCKET, tmp_path.name)), **reach}
    return {key.replace(".", "__").replace("-", "_"): value for key, value in settings.items()}


@dataclass
class Sinking(Program):
    """Numbers with so much text that sinks stage files."""

    case: Case = field(kw_only=True)

    def count(self, numbers: DataStream) -> None:
        stream = numbers.map(ScriptedFailures(self.root, self.fails), Types.LONG()).uid("failures")
        stream = stream.key_by(lambda n: n % 3, Types.LONG()).map(str, Types.STRING()).uid("text")
        stream = stream.map(lambda text: f"{text} {PADDING}", Types.STRING()).uid("padded")
        stream.sink_to(on_a_new_driver(self.case).sink).uid("sink")


def numbers_in(case: Case) -> list[int]:
    return sorted(int(text.split()[0]) for text in case.shown())


@pytest.mark.parametrize("make", SINKS)
def test_a_job_that_loses_hosts_shows_every_record_once(
    make: Make,
    request: pytest.FixtureRequest,
    in_s3: dict[str, str],
    s3: S3Server,
    tmp_path: Path,
) -> None:
    with closing(make(tmp_path, request.getfixturevalue)) as case:
        for records in (40, 80):
            program = Sinking(tmp_path, idle_after(records), settings=in_s3, case=case)
            job = program.launch()
            eventually(lambda: len(numbers_in(case)) >= records / 2)  # noqa: B023
            die(job)
            shutil.rmtree(job._context.work_dir, ignore_errors=True)
        Sinking(tmp_path, bursts(120), fails=[95], settings=in_s3, case=case).run()
        assert numbers_in(case) == list(range(120))
    left = storage_at(s3.url(BUCKET, tmp_path.name)).list("")
    assert [path for path in left if "connectors" in path] == []


def test_what_a_lost_driver_could_not_commit_is_committed_first(
    in_s3: dict[str, str], tmp_path: Path
) -> None:
    prepared: dict[str, list[str]] = {}
    committed: set[str] = set()
    shown: list[str] = []
    is_reached, is_dead = threading.Event(), threading.Event()

    def write(name: str, values: list[str]) -> None:
        prepared.setdefault(name, []).extend(values)

    def commit(name: str) -> None:
        if not is_dead.is_set():
            is_reached.set()
            assert is_dead.wait(60)
            raise ConnectionError
        # Two checkpoints may hold the same committable.
        if name in committed:
            raise AlreadyCommitted
        committed.add(name)
        shown.extend(prepared.pop(name))

    def abort(context: TransactionContext, *_: object) -> None:
        prepared.pop(context.name, None)

    def build() -> Case:
        sink = TwoPhaseSink(
            open=lambda context: context.name,
            write=write,
            prepare=lambda name: name,
            commit=commit,
            abort=abort,
        )
        return Case(sink, lambda: list(shown))

    program = Sinking(tmp_path, idle_after(40), interval="1 h", settings=in_s3, case=build())
    job = program.launch()
    wait_for_records(job, 40)
    job.trigger_checkpoint()
    assert is_reached.wait(60)
    job.suspend()
    job.kill()
    is_dead.set()
    assert job.wait_for_end(20)
    assert shown == []
    case = build()
    Sinking(tmp_path, bursts(60), settings=in_s3, case=case).run()
    assert numbers_in(case) == list(range(60))
    assert prepared == {}
