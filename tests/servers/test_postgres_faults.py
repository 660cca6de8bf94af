"""The PostgreSQL sink while servers and drivers are killed, paused and disconnected."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest
from penstock.connectors.contracts.committing import commit_all
from tests.contracts.sink_harness import Attempt, Case, files_in
from tests.servers.cutting_proxy import CuttingProxy, Loss
from tests.servers.postgres_sink_case import (
    dsn_of,
    lines_in,
    lines_sink,
    lines_table,
    prepared,
    run,
    single_phase_case,
    two_phase_case,
    upsert_case,
)
from tests.servers.request_watch import request_with

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
LARGE = "x" * 100_000


def await_true(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def is_copying(dsn: str) -> bool:
    return bool(run(dsn, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%' AND wait_event"
                    " = 'PgSleep'"))  # fmt: skip


def slow_inserts(dsn: str) -> None:
    """Slow down every row, so that a COPY can be interrupted in the middle."""
    run(
        dsn,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.005); RETURN new; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION slow()",
    )


def commit_patiently(attempt: Attempt, committables: list[bytes]) -> Any:
    committer = attempt.committer()
    try:
        return commit_all(
            committer, committables, retries=50, pause=lambda _: time.sleep(0.1), step="the sink"
        )
    finally:
        committer.close()


@pytest.mark.parametrize("make", [two_phase_case, single_phase_case])
def test_a_server_killed_between_the_phases_loses_nothing(
    postgres: Any, tmp_path: Path, make: Any
) -> None:
    case = make(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    attempt.publish([LARGE], ["b"])
    committables = attempt.snapshot().committables
    committer = attempt.committer()
    postgres.kill()
    request = CommitRequest(committables[0])
    later = CommitRequest(committables[1])
    committer.commit([request, later])
    assert (request.outcome, later.outcome) == (CommitOutcome.RETRY_LATER,) * 2
    postgres.start()
    assert commit_patiently(attempt, committables).committed == 2
    assert sorted(case.shown()) == ["b", LARGE]


def test_a_server_killed_during_a_copy_is_waited_for(postgres: Any, tmp_path: Path) -> None:
    case = two_phase_case(postgres, tmp_path)
    dsn = dsn_of(case)
    slow_inserts(dsn)
    attempt = Attempt(case, tmp_path)
    texts = [str(number) for number in range(100)]
    attempt.publish(texts, texts)
    cuts: list[Any] = []
    pre_commit = attempt.publisher.at_barrier(1, flush=False)
    thread = threading.Thread(target=lambda: cuts.append(pre_commit()))
    thread.start()
    await_true(lambda: is_copying(dsn))
    postgres.kill()
    time.sleep(0.3)
    postgres.start()
    thread.join(60)
    assert len(prepared(dsn)) == 2
    attempt.commit(cuts[0].committables)
    assert sorted(case.shown()) == sorted(texts * 2)
    assert case.leftovers() == []


def test_a_server_that_is_paused_for_a_while_is_waited_for(postgres: Any, tmp_path: Path) -> None:
    case = two_phase_case(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    postgres.pause()
    threading.Timer(1.0, postgres.resume).start()
    attempt.commit(attempt.snapshot().committables)
    assert case.shown() == ["a"]


def test_upserts_survive_a_restart_of_the_server(postgres: Any, tmp_path: Path) -> None:
    case = upsert_case(postgres, tmp_path)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    postgres.kill()
    threading.Timer(0.5, postgres.start).start()
    attempt.publish(["b"], [LARGE])
    assert sorted(case.shown()) == ["a", "b", LARGE]


@contextmanager
def between(postgres: Any, needle: bytes) -> Iterator[tuple[CuttingProxy, str, str]]:
    """Give a proxy that watches for some bytes, and dsns through it and around it."""
    dsn = lines_table(postgres)
    with CuttingProxy(postgres.port, watching=request_with(needle)) as proxy:
        through = psycopg.conninfo.make_conninfo(dsn, port=proxy.port)
        yield proxy, through, dsn


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize(
    "needle", [b"BEGIN", b"SELECT attempt", b"penstock_ledger", b"COPY", b"PREPARE TRANSACTION"]
)
def test_a_connection_lost_anywhere_in_the_first_phase_is_recovered(
    postgres: Any, tmp_path: Path, needle: bytes, loss: Loss
) -> None:
    with between(postgres, needle) as (proxy, through, dsn):
        attempt = Attempt(Case(lines_sink(through).build(), list), tmp_path)
        attempt.publish([LARGE], ["b"])
        proxy.cut_at(loss=loss)
        committables = attempt.snapshot().committables
        assert proxy.await_cut(0)
        assert len(prepared(dsn)) == 2
        assert attempt.commit(committables).committed == 2
        assert sorted(lines_in(dsn)) == ["b", LARGE]
        assert (prepared(dsn), files_in(tmp_path / "work")) == ([], [])


@pytest.mark.parametrize("loss", Loss)
def test_a_commit_whose_response_is_lost_is_not_repeated(
    postgres: Any, tmp_path: Path, loss: Loss
) -> None:
    with between(postgres, b"COMMIT PREPARED") as (proxy, through, dsn):
        attempt = Attempt(Case(lines_sink(through).build(), list), tmp_path)
        attempt.publish([LARGE], ["b"])
        committables = attempt.snapshot().committables
        proxy.cut_at(loss=loss)
        report = commit_patiently(attempt, committables)
        assert proxy.await_cut(0)
        assert report.already_committed == (1 if loss is Loss.ANSWER else 0)
        assert report.retried == 2
        assert sorted(lines_in(dsn)) == ["b", LARGE]


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("needle", [b"FOR SHARE", b"penstock_ledger", b"COPY", b"COMMIT\0"])
def test_a_connection_lost_anywhere_in_the_only_phase_is_recovered(
    postgres: Any, tmp_path: Path, needle: bytes, loss: Loss
) -> None:
    with between(postgres, needle) as (proxy, through, dsn):
        case = Case(lines_sink(through).set_two_phase(False).build(), list)
        attempt = Attempt(case, tmp_path)
        attempt.publish([LARGE], ["b"])
        committables = attempt.snapshot().committables
        proxy.cut_at(loss=loss)
        report = commit_patiently(attempt, committables)
        assert proxy.await_cut(0)
        assert report.committed + report.already_committed == 2
        assert sorted(lines_in(dsn)) == ["b", LARGE]


def test_an_upsert_whose_response_is_lost_is_repeated_without_harm(
    postgres: Any, tmp_path: Path
) -> None:
    with between(postgres, b"COMMIT\0") as (proxy, through, dsn):
        run(dsn, "ALTER TABLE lines ADD PRIMARY KEY (text)")
        case = Case(lines_sink(through).set_key_columns("text").build(), list)
        attempt = Attempt(case, tmp_path)
        proxy.cut_at()
        attempt.publish(["a"], [LARGE])
        assert proxy.await_cut(0)
        assert sorted(lines_in(dsn)) == ["a", LARGE]


@pytest.mark.parametrize("phases", ["two", "one"])
def test_a_suspended_attempt_leaves_neither_rows_nor_locks(
    postgres: Any, tmp_path: Path, phases: str
) -> None:
    dsn = lines_table(postgres)
    zombie = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.postgres_zombie", dsn, str(tmp_path), phases],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "loaded\n"
        zombie.send_signal(signal.SIGSTOP)
        sink = lines_sink(dsn).set_two_phase(phases == "two").build()
        successor = Attempt(Case(sink, list), tmp_path, "a2")
        successor.sweep([])
        successor.publish(["successor"], [])
        zombie.send_signal(signal.SIGCONT)
        output, _ = zombie.communicate("go on\n", timeout=60)
        assert "took over with attempt a2" in output
        assert prepared(dsn) == []
        successor.commit(successor.snapshot().committables)
        run(dsn, "SET lock_timeout = '1s'; ALTER TABLE lines ADD more int")
        assert lines_in(dsn) == ["successor"]
    finally:
        zombie.kill()
        zombie.wait()
