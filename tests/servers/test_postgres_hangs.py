"""The PostgreSQL sink before a server that hangs: connections stay open, and nothing answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.common.time import Duration
from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest, Committer
from penstock.connectors.contracts.committing import commit_all
from penstock.connectors.postgres.database import Database, Dsn
from penstock.connectors.postgres.names import SinkIdentity
from penstock.errors import CommitFailedError
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.postgres_sink_case import (
    lines_in,
    lines_sink,
    lines_table,
    prepared,
    run,
)

pytestmark = pytest.mark.postgres

LARGE = "x" * 100_000


def hasty_case(
    postgres: Any, *, two_phase: bool = True, by_key: bool = False, seconds: int = 1
) -> tuple[str, Case]:
    """Time out an unresponsive server after this long, a connection attempt after 2 s."""
    dsn = lines_table(postgres)
    builder = lines_sink(make_conninfo(dsn, connect_timeout=2)).set_two_phase(two_phase)
    if by_key:
        run(dsn, "ALTER TABLE lines ADD PRIMARY KEY (text)")
        builder.set_key_columns("text")
    return dsn, Case(builder.set_response_timeout(Duration.of_seconds(seconds)).build(), list)


def commit_something(attempt: Attempt, committer: Committer) -> None:
    """Let the committer have a connection that is open when the server begins to hang."""
    attempt.publish(["first"], [])
    committables = attempt.snapshot(2).committables
    commit_all(committer, committables, retries=0, pause=lambda _: None, step="the sink")


@contextmanager
def hanging(postgres: Any, seconds: float) -> Iterator[None]:
    """Let the server hang for a while, if need be longer than the block."""
    postgres.pause()
    timer = threading.Timer(seconds, postgres.resume)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("two_phase", [True, False])
def test_a_commit_is_not_blocked_by_a_server_that_hangs(
    postgres: Any, tmp_path: Path, two_phase: bool, caplog: Any
) -> None:
    dsn, case = hasty_case(postgres, two_phase=two_phase, seconds=3)
    attempt = Attempt(case, tmp_path)
    attempt.publish([LARGE], ["b"])
    committables = attempt.snapshot().committables
    committer = attempt.committer()
    commit_something(attempt, committer)
    postgres.pause()
    try:
        with caplog.at_level(logging.WARNING):
            requests = [CommitRequest(committable) for committable in committables]
            began = time.monotonic()
            committer.commit(requests)
            assert time.monotonic() - began < 30
            committer.commit(requests)
        assert [r.outcome for r in requests] == [CommitOutcome.RETRY_LATER] * 2
        messages = [record.getMessage() for record in caplog.records]
        assert [m for m in messages if "has not responded for" in m] != []
        assert len([m for m in messages if "committing rows is retried" in m]) == 1
    finally:
        postgres.resume()
    report = commit_all(
        committer, committables, retries=20, pause=lambda _: time.sleep(0.1), step="the sink"
    )
    committer.close()
    assert report.committed + report.already_committed == 2
    assert sorted(lines_in(dsn)) == ["b", "first", LARGE]
    assert prepared(dsn) == []


def test_a_commit_without_retries_left_reports_an_unresponsive_server(
    postgres: Any, tmp_path: Path
) -> None:
    _, case = hasty_case(postgres)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    committer = attempt.committer()
    commit_something(attempt, committer)
    message = r"after 0 retries: OperationalError: the server did not respond for 1 s"
    postgres.pause()
    try:
        with pytest.raises(CommitFailedError, match=message):
            commit_all(committer, committables, retries=0, pause=lambda _: None, step="the sink")
    finally:
        postgres.resume()
    committer.close()


def test_a_server_that_hangs_during_a_copy_is_waited_for(postgres: Any, tmp_path: Path) -> None:
    dsn, case = hasty_case(postgres)
    run(
        dsn,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.005); RETURN new; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    attempt = Attempt(case, tmp_path)
    texts = [str(number) for number in range(100)]
    attempt.publish(texts, texts)
    cuts: list[Any] = []
    pre_commit = attempt.publisher.at_barrier(1, flush=False)
    thread = threading.Thread(target=lambda: cuts.append(pre_commit()))
    thread.start()
    time.sleep(0.2)
    with hanging(postgres, 3):
        pass
    thread.join(60)
    assert len(prepared(dsn)) == 2
    attempt.commit(cuts[0].committables)
    assert sorted(lines_in(dsn)) == sorted(texts * 2)


def test_upserts_wait_for_a_server_that_hangs(postgres: Any, tmp_path: Path) -> None:
    dsn, case = hasty_case(postgres, by_key=True)
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    with hanging(postgres, 3):
        attempt.publish(["b"], [LARGE])
    assert sorted(lines_in(dsn)) == ["a", "b", LARGE]


def test_a_server_that_responds_now_and_then_does_not_time_out(postgres: Any) -> None:
    identity = SinkIdentity("job", "birth", "step", "a1")
    database = Database(Dsn(lines_table(postgres)), identity, max_retries=0, response_timeout=3.0)
    with closing(database.connect("test")) as connection:
        query = "SELECT repeat('x', 10000), pg_sleep({}) FROM generate_series(1, 9)"
        assert len(connection.execute(query.format(0.4)).fetchall()) == 9
        with pytest.raises(psycopg.OperationalError, match="did not respond for 3 s"):
            connection.execute("SELECT pg_sleep(30)")
        assert connection.closed
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
