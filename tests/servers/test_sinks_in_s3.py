"""Sinks of a job in a real S3 server: what outlives a driver, and what it costs."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.common.storage_url import StorageUrl
from penstock.connectors.collect_sink import CollectSink
from penstock.errors import CommitFailedError, PenstockError
from penstock.storage.object_storage import ObjectStorage
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.contracts.sink_harness import (
    Attempt,
    Case,
    Make,
    by_five_functions,
    collecting,
    files_in,
    name_of,
    on_a_server,
)
from tests.servers.faulty_s3 import Fault, FaultyS3
from tests.servers.postgres_sink_case import dsn_of, prepared, run

pytestmark = pytest.mark.s3

BUCKET = "sinks"
LARGE = "x" * 100_000
KAFKA = on_a_server("kafka", "kafka_sink_case", "exactly_once_case")
PREPARED = on_a_server("postgres", "postgres_sink_case", "two_phase_case")
FROM_FILES = on_a_server("postgres", "postgres_sink_case", "single_phase_case")
SINKS: list[Any] = [collecting, by_five_functions, KAFKA, PREPARED, FROM_FILES]
IN_UPLOADS = [KAFKA, FROM_FILES]
"""Sinks that commit what is in the store."""


@pytest.fixture
def store(s3: S3Server, tmp_path: Path) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, tmp_path.name)


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Make], Case]]:
    """Make a case, and close its publishers in the end."""
    made: list[Case] = []

    def make(case: Make) -> Case:
        made.append(case(tmp_path, request.getfixturevalue))
        return made[-1]

    yield make
    for case in made:
        case.close()


@pytest.fixture(params=SINKS, ids=name_of)
def case(request: pytest.FixtureRequest, make: Callable[[Make], Case]) -> Case:
    return make(request.param)


@pytest.fixture(params=IN_UPLOADS, ids=name_of)
def uploading(request: pytest.FixtureRequest, make: Callable[[Make], Case]) -> Case:
    return make(request.param)


def on_a_new_driver(case: Case) -> Case:
    """Return what a program on another host has: its own sink, and the same output."""
    if isinstance(case.sink, CollectSink):
        assert case.sink._receiver is not None
        return dataclasses.replace(case, sink=CollectSink(case.sink._receiver.receive))
    return case


def restarted(
    case: Case, directory: Path, store: StorageUrl, commits: Sequence[bytes], name: str = "a2"
) -> Attempt:
    """Lose the driver's host, and restore what a checkpoint holds on another one."""
    shutil.rmtree(directory / "lost", ignore_errors=True)
    case = on_a_new_driver(case)
    return Attempt(case, directory, name, driver="new", store=store, commits=commits)


def left_in(store: StorageUrl) -> list[str]:
    return storage_at(store).list("")


def test_what_a_dead_driver_pre_committed_is_committed_once(
    case: Case, tmp_path: Path, store: StorageUrl
) -> None:
    dead = Attempt(case, tmp_path, driver="lost", store=store)
    dead.publish([f"a{LARGE}"], ["b"])
    dead.publish(["c"], [f"d{LARGE}"])
    committables = dead.snapshot(1, flush=False).committables
    dead.publish([f"never{LARGE}"], ["seen"])
    dead.snapshot(2, flush=False)
    alive = restarted(case, tmp_path, store, committables)
    assert alive.recommitted.committed == len(committables)
    expected = [f"a{LARGE}", "b", "c", f"d{LARGE}"]
    assert sorted(case.shown()) == expected
    again = restarted(case, tmp_path, store, committables, "a3")
    assert again.recommitted.committed == 0
    again.publish(["e"], [])
    again.commit(again.snapshot(3, flush=False).committables)
    again.sweep([])
    assert sorted(case.shown()) == [*expected, "e"]
    assert left_in(store) == []
    assert files_in(tmp_path / "new") == []


def test_what_is_committed_leaves_nothing_but_a_record_behind(
    case: Case, tmp_path: Path, store: StorageUrl
) -> None:
    attempt = Attempt(case, tmp_path, store=store)
    for checkpoint in range(1, 4):
        attempt.publish([LARGE], [LARGE])
        attempt.commit(attempt.snapshot(checkpoint, flush=False).committables)
    assert [path for path in left_in(store) if not path.endswith(".delivered")] == []


def test_sweeping_spares_what_is_named_and_what_is_later(
    case: Case, tmp_path: Path, store: StorageUrl
) -> None:
    dead = Attempt(case, tmp_path, driver="lost", store=store)
    dead.publish([f"a{LARGE}"], [])
    named = dead.snapshot(1).committables
    successor = Attempt(case, tmp_path, "a10", driver="work", store=store, commits=named)
    successor.publish([f"b{LARGE}"], [])
    later = successor.snapshot(2).committables
    # A driver that fell asleep while it was starting; some sinks have fenced it.
    with suppress(PenstockError):
        Attempt(case, tmp_path, "a2", driver="asleep", store=store, commits=named)
    restarted(case, tmp_path, store, later, "a11")
    assert sorted(case.shown()) == [f"a{LARGE}", f"b{LARGE}"]


def test_a_death_between_commit_and_removal_is_harmless(
    case: Case, tmp_path: Path, store: StorageUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Attempt(case, tmp_path, driver="lost", store=store)
    dead.publish([LARGE], [])
    committables = dead.snapshot(1, flush=False).committables

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStorage, "delete_all", die)
        with suppress(KeyboardInterrupt, CommitFailedError):
            dead.commit(committables)
    restarted(case, tmp_path, store, committables).sweep([])
    assert case.shown() == [LARGE]
    assert left_in(store) == []


def test_a_savepoint_is_committed_when_a_later_attempt_has_rolled_it_back(
    make: Callable[[Make], Case], postgres: Any, tmp_path: Path, store: StorageUrl
) -> None:
    case = make(PREPARED.values[0])
    dead = Attempt(case, tmp_path, driver="lost", store=store)
    dead.publish([f"a{LARGE}"], ["b"])
    of_checkpoint = dead.snapshot(1, flush=False).committables
    assert left_in(store) == []
    dead.publish([f"c{LARGE}"], [])
    savepoint = [*of_checkpoint, *dead.snapshot(2, flush=True).committables]
    for gid in prepared(dsn_of(case)):
        run(dsn_of(case), f"ROLLBACK PREPARED '{gid}'")
    other = Attempt(case, tmp_path, job="other", driver="new", store=store)
    shutil.rmtree(tmp_path / "lost")
    assert other.commit(savepoint).committed == 3
    assert sorted(case.shown()) == [f"a{LARGE}", "b", f"c{LARGE}"]


@pytest.mark.parametrize("where", ["in a store", "in a directory"])
def test_another_job_commits_from_the_store_of_a_savepoint_and_removes_nothing(
    uploading: Case, tmp_path: Path, store: StorageUrl, where: str
) -> None:
    dead = Attempt(uploading, tmp_path, driver="lost", store=store)
    dead.publish([LARGE], ["b"])
    savepoint = dead.snapshot(1).committables
    shutil.rmtree(tmp_path / "lost")
    before = left_in(store)
    other = Attempt(
        uploading,
        tmp_path,
        job="other",
        driver="new",
        store=store if where == "in a store" else None,
        storage_options=store.options,
    )
    assert other.commit(savepoint).committed == 2
    other.sweep(savepoint)
    other.sweep([])
    assert sorted(uploading.shown()) == ["b", LARGE]
    assert left_in(store) == before
    assert files_in(tmp_path / "new") == []


def test_a_job_in_a_store_commits_a_savepoint_of_one_in_a_directory(
    uploading: Case, tmp_path: Path, store: StorageUrl
) -> None:
    dead = Attempt(uploading, tmp_path)
    dead.publish([LARGE], ["b"])
    savepoint = dead.snapshot(1).committables
    other = Attempt(uploading, tmp_path, job="other", driver="new", store=store)
    assert other.commit(savepoint).committed == 2
    assert sorted(uploading.shown()) == ["b", LARGE]


def test_a_committable_names_the_store_and_no_credentials(
    uploading: Case, s3: S3Server, tmp_path: Path, store: StorageUrl
) -> None:
    attempt = Attempt(uploading, tmp_path, store=store)
    attempt.publish([LARGE], [])
    (committable,) = attempt.snapshot(1).committables
    assert str(store).encode() in committable
    assert s3.secret_key.encode() not in committable


@pytest.mark.parametrize("damage", ["missing", "short", "long", "another"])
def test_a_damaged_upload_is_named_and_nothing_is_committed(
    uploading: Case, s3: S3Server, tmp_path: Path, store: StorageUrl, damage: str
) -> None:
    dead = Attempt(uploading, tmp_path, driver="lost", store=store)
    dead.publish([LARGE], [])
    committables = dead.snapshot(1).committables
    (path,) = (s3.buckets / BUCKET / tmp_path.name).rglob("*.upload")
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        changed = {"short": data[:-1], "long": data + b"x"}
        path.write_bytes(changed.get(damage, data[:-20] + b"?" + data[-19:]))
    with pytest.raises(CommitFailedError, match=r"upload|rows") as caught:
        restarted(uploading, tmp_path, store, committables)
    assert caught.value.kind == "impossible"
    assert uploading.shown() == []


# -- requests --------------------------------------------------------------------------------------


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyS3]:
    with FaultyS3(s3.port) as proxy:
        yield proxy


def through(proxy: FaultyS3, s3: S3Server, directory: Path, **settings: str) -> StorageUrl:
    s3.create_bucket(BUCKET)
    return s3.url(BUCKET, directory.name, endpoint=proxy.endpoint, **settings)


@pytest.mark.parametrize(
    ("sink", "puts", "deletes"),
    [
        pytest.param(KAFKA.values[0], 2, 1, marks=pytest.mark.kafka, id="kafka"),
        pytest.param(PREPARED.values[0], 0, 0, marks=pytest.mark.postgres, id="prepared"),
        pytest.param(FROM_FILES.values[0], 2, 1, marks=pytest.mark.postgres, id="from_files"),
        # The delivery, and the record that it was handed over.
        pytest.param(collecting, 2, 1, id="collecting"),
        # Before a transaction is opened, when it is prepared, and before it is committed.
        pytest.param(by_five_functions, 6, 5, id="by_five_functions"),
    ],
)
def test_a_checkpoint_costs_a_bounded_number_of_requests(
    make: Callable[[Make], Case],
    sink: Make,
    puts: int,
    deletes: int,
    s3: S3Server,
    proxy: FaultyS3,
    tmp_path: Path,
) -> None:
    case = make(sink)
    attempt = Attempt(case, tmp_path, store=through(proxy, s3, tmp_path))
    attempt.publish(["warm"], [])
    with closing(attempt.committer()) as committer:
        attempt.commit(attempt.snapshot(1, flush=False).committables)
        proxy.counted()
        for _ in range(5):
            attempt.publish([LARGE, "a"], [LARGE])
            attempt.publish(["b"], ["c"])
        committables = attempt.snapshot(2, flush=False).committables
        attempt.commit(committables)
        done = proxy.counted()
        committer.notify_checkpoint_complete()
    assert len(case.shown()) == 26
    assert sum(one.startswith("PUT") for one in done) == puts, done
    assert sum(one.startswith(("POST delete", "DELETE")) for one in done) == deletes, done


def test_small_output_costs_no_request(
    uploading: Case, s3: S3Server, proxy: FaultyS3, tmp_path: Path
) -> None:
    attempt = Attempt(uploading, tmp_path, store=through(proxy, s3, tmp_path))
    proxy.counted()
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    attempt.commit(attempt.snapshot(1, flush=False).committables)
    assert sorted(uploading.shown()) == ["a", "b", "c"]
    assert proxy.counted() == []


@pytest.mark.parametrize("method", ["PUT", "GET", "POST"])
def test_a_lost_answer_changes_nothing(
    case: Case, s3: S3Server, proxy: FaultyS3, tmp_path: Path, method: str
) -> None:
    store = through(proxy, s3, tmp_path)
    proxy.once(Fault(loses_answer=True), method, times=2)
    dead = Attempt(case, tmp_path, driver="lost", store=store)
    dead.publish([LARGE], ["b"])
    committables = dead.snapshot(1, flush=False).committables
    restarted(case, tmp_path, store, committables).sweep([])
    assert sorted(case.shown()) == ["b", LARGE]
    assert left_in(store) == []


def test_a_pre_commit_that_the_store_refused_is_made_up_for_by_the_next(
    uploading: Case, s3: S3Server, proxy: FaultyS3, tmp_path: Path
) -> None:
    store = through(proxy, s3, tmp_path, retry_timeout="1 s")
    attempt = Attempt(uploading, tmp_path, driver="lost", store=store)
    attempt.publish([f"a{LARGE}"], ["b"])
    proxy.once(Fault(status=403, code="AccessDenied"), "PUT", times=1)
    with pytest.raises(OSError, match="upload"):
        attempt.snapshot(1)
    attempt.publish([], [f"c{LARGE}"])
    committables = attempt.snapshot(2).committables
    restarted(uploading, tmp_path, store, committables)
    assert sorted(uploading.shown()) == [f"a{LARGE}", "b", f"c{LARGE}"]
