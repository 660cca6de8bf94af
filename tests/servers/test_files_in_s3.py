"""File sources and sinks whose files are in a real S3 server: lost requests, changes, costs."""

from __future__ import annotations

import gzip
import os
import re
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Duration
from penstock.common.serialization import Encoder
from penstock.common.storage_url import StorageUrl
from penstock.connectors.contracts.committer import Committer
from penstock.connectors.contracts.committing import CommitReport, commit_all
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import EnumeratorContext, SourceEnumerator
from penstock.connectors.files.committables import StoredPart, decode_entry, encode
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.stored import part_files as stored_part_files
from penstock.connectors.files.stored.part_files import StoredPartFiles
from penstock.connectors.formats.input_file import input_place
from penstock.connectors.formats.text_lines import StreamFormat
from penstock.errors import (
    ChangedFileError,
    CommitFailedError,
    CorruptStagedRecordsError,
    LostStagedFileError,
    MissingPathError,
    RestoreMismatchError,
)
from penstock.storage.clients.s3_uploads import MultipartUploads
from penstock.storage.object_storage import ObjectStorage
from penstock.storage.storages import storage_at
from penstock.testing.servers.s3_server import S3Server
from tests.contracts.sink_harness import Attempt, Case, row_files
from tests.servers.faulty_s3 import Fault, FaultyS3, Request
from tests.servers.file_sink_case import (
    BUCKET,
    finished,
    leftovers,
    lines_in,
    parquet_case,
    place_in,
    row_case,
    row_sink,
)

pytestmark = pytest.mark.s3

ROLLING = RollingPolicy.on_checkpoint_rolling_policy()
GROWING = RollingPolicy.default_rolling_policy(part_size=60 << 20)
QUICK = {"retry_timeout": "2 s", "init_backoff": "10 ms", "max_backoff": "50 ms"}
MIB = 1 << 20


@pytest.fixture
def place(s3: S3Server, tmp_path: Path) -> StorageUrl:
    return place_in(s3, tmp_path)


@pytest.fixture
def case(place: StorageUrl) -> Iterator[Case]:
    yield (case := row_case(place, ROLLING))
    case.close()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyS3]:
    s3.create_bucket(BUCKET)
    with FaultyS3(s3.port) as proxy:
        yield proxy


def through(proxy: FaultyS3, place: StorageUrl, **settings: str) -> StorageUrl:
    given = {f"s3.{name.replace('_', '-')}": text for name, text in (QUICK | settings).items()}
    return place.with_options({**place.options, "s3.endpoint": proxy.endpoint, **given})


def uploads_below(place: StorageUrl) -> list[str]:
    uploads = MultipartUploads.of(place)
    assert uploads is not None
    return [target.name for target, _ in uploads.begun(f"{place.path}/")]


def as_amazon(proxy: FaultyS3) -> None:
    """Refuse to complete an upload twice, as S3 does; versitygw accepts that."""
    completed: set[str] = set()

    def choose(request: Request) -> Fault | None:
        path, _, query = request.target.partition("?")
        if request.method != "POST" or not query.startswith("uploadId"):
            return None
        if path in completed:
            return Fault(status=412, code="PreconditionFailed")
        completed.add(path)
        return None

    proxy.choose = choose


def commit_by(committer: Committer, committables: Sequence[bytes]) -> CommitReport:
    return commit_all(committer, committables, retries=0, pause=lambda _: None, step="the sink")


def parts_of(committables: Sequence[bytes]) -> list[StoredPart]:
    parts = list(map(decode_entry, committables))
    assert all(isinstance(part, StoredPart) for part in parts)
    return parts


# -- sinks -----------------------------------------------------------------------------------------


def test_a_file_is_uploaded_at_the_barrier_and_appears_at_the_commit(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    committables = attempt.snapshot().committables
    assert finished(place) == []
    assert len(uploads_below(place)) == 2
    attempt.commit(committables)
    assert sorted(case.shown()) == ["a", "b", "c"]
    assert case.leftovers() == []


def test_large_pieces_are_copied_by_the_store_and_small_ones_are_read(
    s3: S3Server, proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(through(proxy, place), ROLLING)
    attempt = Attempt(case, tmp_path)
    lines = [f"{n}{size * 'x'}" for n, size in enumerate((9, 6 * MIB, 11 * MIB, 70, 13 * MIB, 5))]
    for line in lines:
        attempt.publish([line], [])
    proxy.requests.clear()
    committables = attempt.snapshot().committables
    copies = [r for r in proxy.requests if "x-amz-copy-source" in {n.lower() for n in r.headers}]
    sent = sum(len(r.body) for r in proxy.requests)
    assert len(copies) == 3
    assert 10 * MIB < sent < 20 * MIB
    attempt.commit(committables)
    assert lines_in(place) == lines
    attempt.sweep([])
    assert leftovers(place) == []


def test_a_checkpoint_costs_a_bounded_number_of_requests(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(through(proxy, place), ROLLING)
    attempt = Attempt(case, tmp_path)
    with closing(attempt.committer()):
        attempt.publish(["warm"], [])
        attempt.commit(attempt.snapshot().committables)
        proxy.counted()
        for _ in range(5):
            attempt.publish(["a"], ["b"])
        assert proxy.counted() == ["PUT"] * 10
        committables = attempt.snapshot(2).committables
        at_the_barrier = sorted(proxy.counted())
        attempt.commit(committables)
        at_the_commit = sorted(proxy.counted())
    assert at_the_barrier == [
        *["GET"] * 10,
        *["POST uploads"] * 2,
        *["PUT partNumber,uploadId"] * 2,
    ]
    # A new committer asks whether the objects are there: this one could be committing again.
    assert at_the_commit == [*["HEAD"] * 2, *["POST delete"] * 3, *["POST uploadId"] * 2]


@pytest.mark.parametrize(("method", "flush"), [("GET", True), ("HEAD", False)])
def test_small_pieces_are_read_and_looked_for_at_the_same_time(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path, method: str, flush: bool
) -> None:
    attempt = Attempt(row_case(through(proxy, place), GROWING), tmp_path)
    lines = [f"line {number}" for number in range(16)]
    for line in lines:
        attempt.publish([line], [])
    together = threading.Barrier(8)

    def choose(request: Request) -> None:
        if request.method == method:
            with suppress(threading.BrokenBarrierError):
                together.wait(10)

    proxy.choose = choose
    snapshot = attempt.snapshot(flush=flush)
    proxy.choose = lambda _: None
    assert not together.broken
    attempt.commit([*snapshot.committables, *attempt.snapshot(2).committables])
    assert lines_in(place) == lines


def test_a_file_of_one_piece_is_never_read(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(row_case(through(proxy, place), ROLLING), tmp_path)
    attempt.publish(["a"], [])
    proxy.counted()
    attempt.snapshot()
    assert proxy.counted() == ["POST uploads", "PUT partNumber,uploadId"]


@pytest.mark.parametrize(
    ("method", "query"),
    [("PUT", ""), ("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId")],
    ids=["piece", "create", "part", "complete"],
)
@pytest.mark.parametrize(
    "fault",
    [Fault(loses_answer=True), Fault(status=503), Fault(cuts_after=3)],
    ids=["lost", "busy", "broken"],
)
def test_a_request_without_an_answer_changes_nothing(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path, method: str, query: str, fault: Fault
) -> None:
    case = row_case(through(proxy, place), ROLLING)
    left = [2]

    def choose(request: Request) -> Fault | None:
        keys = request.target.partition("?")[2]
        if request.method != method or not keys.startswith(query) or not left[0]:
            return None
        left[0] -= 1
        return fault

    proxy.choose = choose
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    attempt.commit(attempt.snapshot().committables)
    attempt.sweep([])
    assert left == [0]
    assert sorted(lines_in(place)) == ["a", "b", "c"]
    assert leftovers(place) == []


def test_a_part_that_fails_in_the_middle_of_its_answer_is_uploaded_again(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    error = b"\n <Error><Code>InternalError</Code><Message>later</Message></Error>"
    attempt = Attempt(row_case(through(proxy, place), ROLLING), tmp_path)
    attempt.publish(["a"], [])
    proxy.once(Fault(body=error), "PUT")
    committables = attempt.snapshot().committables
    proxy.once(Fault(status=200, body=error), "POST")
    attempt.commit(committables)
    assert lines_in(place) == ["a"]


def test_an_upload_that_has_expired_is_made_again_from_its_pieces(
    case: Case, place: StorageUrl, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    committables = attempt.snapshot().committables
    storage_at(place).delete_unfinished("")
    assert uploads_below(place) == []
    assert attempt.commit(committables).committed == 2
    assert sorted(case.shown()) == ["a", "b", "c"]
    assert "has expired by a rule of the bucket" in caplog.text
    assert attempt.commit(committables).already_committed == 2
    assert case.leftovers() == []


def test_an_upload_that_has_expired_is_lost_only_with_its_pieces(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    storage_at(place).delete_unfinished("")
    (part,) = parts_of(committables)
    piece = input_place(part.sources[0].path, place.options)
    assert isinstance(piece, StorageUrl)
    data = storage_at(piece.parent).read(piece.name)
    storage_at(piece.parent).delete(piece.name)
    with pytest.raises(CommitFailedError, match="is gone and there is no s3://files/"):
        attempt.commit(committables)
    storage_at(piece.parent).replace(piece.name, data)
    attempt.commit(committables)
    assert case.shown() == ["a"]


@pytest.mark.parametrize("uploads", [True, False], ids=["uploaded", "copied"])
def test_a_moved_object_does_not_appear_again_when_its_commit_is_repeated(
    place: StorageUrl, tmp_path: Path, uploads: bool
) -> None:
    if not uploads:
        place = place.with_options({**place.options, "s3.proxy-excludes": "none.example"})
    attempt = Attempt(row_case(place, GROWING), tmp_path)
    attempt.publish(["a"], [])
    older = attempt.snapshot(1, flush=False)
    committables = attempt.snapshot(2).committables
    (part,) = parts_of(committables)
    assert part.held
    attempt.commit(committables)
    (name,) = finished(place)
    storage_at(place).delete(name)
    with pytest.raises(CommitFailedError, match="is gone and there is no s3://files/"):
        attempt.commit(committables)
    assert finished(place) == []
    again = Attempt(row_case(place, GROWING), tmp_path, "a2", older.state)
    again.commit(again.snapshot(3).committables)
    assert lines_in(place) == ["a"]


def test_a_moved_object_of_another_jobs_checkpoint_does_not_appear_again(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    """Whichever job commits the checkpoint uses up what it holds, as in a directory."""
    original = Attempt(case, tmp_path)
    original.publish(["a"], [])
    committables = original.snapshot(1).committables
    Attempt(case, tmp_path, job="other", commits=committables)
    (name,) = finished(place)
    storage_at(place).delete(name)
    for job in ("other", "third"):
        with pytest.raises(CommitFailedError, match="is gone and there is no s3://files/"):
            Attempt(case, tmp_path, "a2", job=job, commits=committables)
    assert finished(place) == []


@pytest.mark.parametrize("uploads", [True, False], ids=["uploaded", "copied"])
def test_an_object_that_is_moved_while_its_commit_is_interrupted_does_not_appear_again(
    place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: bool
) -> None:
    settings = {} if uploads else {"s3.proxy-excludes": "none.example"}
    place = place.with_options({**place.options, **settings})
    attempt = Attempt(row_case(place, ROLLING), tmp_path)
    attempt.publish(["a"], [])
    attempt.publish(["b"], [])
    committables = attempt.snapshot().committables
    with monkeypatch.context() as patch:
        # The driver dies during the commit, and other parts have not appeared.
        patch.setattr(StoredPartFiles, "finish", lambda *_: None)
        attempt.commit(committables)
    (name,) = finished(place)
    storage_at(place).delete(name)
    with pytest.raises(CommitFailedError, match="is gone and there is no s3://files/"):
        attempt.commit(committables)
    assert finished(place) == []


def test_a_commit_that_cannot_delete_a_piece_of_its_part_fails_and_is_repeated(
    case: Case, place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise ConnectionError

        patch.setattr(ObjectStorage, "delete_all", fail)
        with pytest.raises(CommitFailedError, match="ConnectionError"):
            attempt.commit(committables)
    assert attempt.commit(committables).already_committed == 1
    assert (lines_in(place), case.leftovers()) == (["a"], [])


def test_an_expired_upload_of_pieces_that_an_older_checkpoint_holds_is_made_again(
    place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(place, GROWING)
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], [])
    older = dead.snapshot(1, flush=False)
    committables = dead.snapshot(2).committables
    storage_at(place).delete_unfinished("")
    dead.sweep([*older.state, *committables])
    Attempt(case, tmp_path, "a2", commits=committables)
    assert lines_in(place) == ["a"]


def test_only_a_part_without_new_pieces_costs_a_request_more(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(row_case(through(proxy, place), GROWING), tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.snapshot(1, flush=False)
    attempt.publish(["c"], [])
    proxy.counted()
    attempt.snapshot(2)
    assert sorted(proxy.counted()) == [
        *["GET"] * 2,
        *["POST uploads"] * 2,
        "PUT",
        *["PUT partNumber,uploadId"] * 2,
    ]


def test_uploads_that_are_completed_are_not_aborted_as_long_as_a_checkpoint_holds_them(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(row_case(through(proxy, place), ROLLING), tmp_path)
    attempt.publish(["a"], [])
    first = attempt.snapshot(1).committables
    attempt.publish(["b"], [])
    second = attempt.snapshot(2).committables
    with closing(attempt.committer()) as committer:
        commit_by(committer, first)
        commit_by(committer, second)
        # Checkpoint 2 was complete before the first part was known to be committed.
        committer.discard(first, [*first, *second])
        proxy.counted()
        committer.discard([*first, *second], [])
    assert "DELETE uploadId" not in proxy.counted()


def test_a_restored_part_that_has_appeared_is_recognised_without_reading_it(
    proxy: FaultyS3, place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = row_case(through(proxy, place), ROLLING)
    attempt = Attempt(case, tmp_path)
    for line in ("a", "b" * 12 * MIB, "c"):
        attempt.publish([line], [])
    committables = attempt.snapshot().committables
    as_amazon(proxy)
    with monkeypatch.context() as patch:
        # The driver dies before it has removed the pieces.
        patch.setattr(StoredPartFiles, "finish", lambda *_: None)
        attempt.commit(committables)
    proxy.counted()
    assert attempt.commit(committables).already_committed == 1
    assert "GET" not in proxy.counted()
    assert lines_in(place) == ["a", "b" * 12 * MIB, "c"]
    assert case.leftovers() == []


@pytest.mark.parametrize("uploads", [True, False], ids=["uploaded", "copied"])
def test_an_object_that_was_rewritten_after_its_commit_does_not_stop_the_job(
    proxy: FaultyS3,
    place: StorageUrl,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    uploads: bool,
) -> None:
    settings = {} if uploads else {"proxy-excludes": "none.example"}
    attempt = Attempt(row_case(through(proxy, place, **settings), ROLLING), tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    as_amazon(proxy)
    attempt.commit(committables)
    (name,) = finished(place)
    storage_at(place).replace(name, b"compacted\n")
    assert attempt.commit(committables).already_committed == 1
    assert lines_in(place) == ["compacted"]
    assert "another program has written it" in caplog.text


@pytest.mark.parametrize("uploads", [True, False], ids=["uploaded", "copied"])
def test_an_object_of_another_origin_is_never_overwritten(
    s3: S3Server, place: StorageUrl, tmp_path: Path, uploads: bool
) -> None:
    if not uploads:
        place = place.with_options({**place.options, "s3.proxy-excludes": "none.example"})
    attempt = Attempt(row_case(place, ROLLING), tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    (part,) = parts_of(committables)
    assert bool(part.upload) == uploads
    name = part.final.rpartition("/")[2]
    storage_at(place).create(name, b"?\n")
    with pytest.raises(CommitFailedError, match="another file has that name"):
        attempt.commit(committables)
    assert storage_at(place).read(name) == b"?\n"
    storage_at(place).delete(name)
    attempt.commit(committables)
    assert lines_in(place) == ["a"]


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("uploads", [True, False], ids=["uploaded", "copied"])
def test_a_damaged_piece_is_found_before_the_checkpoint_completes(
    s3: S3Server, place: StorageUrl, tmp_path: Path, pieces: int, uploads: bool
) -> None:
    if not uploads:
        place = place.with_options({**place.options, "s3.proxy-excludes": "none.example"})
    attempt = Attempt(row_case(place, ROLLING), tmp_path)
    for number in range(pieces):
        attempt.publish([f"line {number}"], [])
    piece = next((s3.buckets / BUCKET / place.path).rglob("*.piece"))
    good = piece.read_bytes()
    for bad, error in ((b"LINE 0\n", CorruptStagedRecordsError), (b"line", LostStagedFileError)):
        storage_at(place).replace(str(piece.relative_to(s3.buckets / BUCKET / place.path)), bad)
        with pytest.raises((error, CorruptStagedRecordsError), match=r"\.piece"):
            attempt.snapshot()
        assert uploads_below(place.with_options(s3.options())) == []
    storage_at(place).replace(str(piece.relative_to(s3.buckets / BUCKET / place.path)), good)
    attempt.commit(attempt.snapshot(2).committables)
    assert lines_in(place) == [f"line {number}" for number in range(pieces)]


def test_a_sweep_aborts_what_this_job_began_and_no_snapshot_needs(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    mine = Attempt(case, tmp_path)
    mine.publish(["kept"], [])
    kept = mine.snapshot(1).committables
    mine.publish(["lost"], [])
    mine.snapshot(2)
    later = Attempt(case, tmp_path, "a2")
    later.publish(["later"], [])
    of_later = later.snapshot(1).committables
    other = Attempt(case, tmp_path, job="other")
    other.publish(["of another job"], [])
    of_other = other.snapshot(1).committables
    uploads = MultipartUploads.of(place)
    assert uploads is not None
    uploads.create(place / "of-another-program.txt")
    assert len(uploads_below(place)) == 5
    mine.sweep(kept)
    assert len(uploads_below(place)) == 4
    for attempt, committables in ((mine, kept), (later, of_later), (other, of_other)):
        attempt.commit(committables)
    assert sorted(case.shown()) == ["kept", "later", "of another job"]
    assert uploads_below(place) == ["of-another-program.txt"]


def test_without_uploads_of_its_own_a_sweep_spares_what_tasks_of_a_later_attempt_upload(
    place: StorageUrl, tmp_path: Path
) -> None:
    hidden = place.with_options({**place.options, "s3.proxy-excludes": "none.example"})
    mine = Attempt(row_case(hidden, ROLLING), tmp_path)
    mine.publish(["a"], [])
    kept = mine.snapshot(1).committables
    piece = parts_of(kept)[0].sources[0].path
    uploads = MultipartUploads.of(place)
    assert uploads is not None
    of_mine = place / piece.removeprefix(f"{place}/")
    of_later = of_mine.parent.parent / "a2" / "large.piece"
    uploads.create(of_mine.parent / "large.piece")
    uploads.create(of_later)
    mine.sweep(kept)
    assert [url for url, _ in uploads.begun(f"{place.path}/")] == [of_later]


def test_the_uploads_of_a_checkpoint_that_never_counts_are_aborted(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    first = attempt.snapshot(1).committables
    attempt.publish(["b"], [])
    second = attempt.snapshot(2).committables
    attempt.discard(second, first)
    assert len(uploads_below(place)) == 1
    attempt.commit(first)
    attempt.discard(first, [])
    assert case.shown() == ["a"]
    assert case.leftovers() == []


def test_uploads_that_are_never_needed_are_aborted_although_the_sink_has_moved(
    place: StorageUrl, tmp_path: Path
) -> None:
    dead = Attempt(row_case(place / "old", ROLLING), tmp_path)
    dead.publish(["a"], [])
    lost = dead.snapshot(1).committables
    other = Attempt(row_case(place / "old", ROLLING), tmp_path, job="other")
    other.publish(["b"], [])
    of_other = other.snapshot(1).committables
    moved = Attempt(row_case(place / "new", ROLLING), tmp_path, "a2")
    moved.discard([*lost, *of_other], [])
    assert len(uploads_below(place)) == 1
    other.commit(of_other)
    assert lines_in(place / "old") == ["b"]


def test_pieces_of_a_growing_file_stay_in_the_store_over_checkpoints(
    place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(place, GROWING)
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], ["b"])
    first = dead.snapshot(1, flush=False)
    dead.publish(["c"], [])
    second = dead.snapshot(2, flush=False)
    dead.publish(["never"], ["seen"])
    assert first.committables == second.committables == []
    alive = Attempt(case, tmp_path, "a2", second.state)
    alive.sweep(second.state)
    alive.publish(["d"], [])
    last = alive.snapshot(3, flush=True)
    assert last.state == []
    alive.commit(last.committables)
    assert sorted(case.shown()) == ["a", "b", "c", "d"]
    again = Attempt(case, tmp_path, "a3", first.state)
    again.commit(again.snapshot(4, flush=True).committables)
    assert sorted(case.shown()) == ["a", "a", "b", "b", "c", "d"]
    again.discard([*first.state, *second.state, *last.committables], [])
    again.sweep([])
    assert case.leftovers() == []


def test_pieces_of_another_job_are_not_needed_when_an_upload_with_them_has_expired(
    place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(place, GROWING)
    original = Attempt(case, tmp_path)
    original.publish(["a"], [])
    state = original.snapshot(1, flush=False).state
    other = Attempt(case, tmp_path, job="other", restored=state)
    other.publish(["b"], [])
    first = other.snapshot(1, flush=False)
    assert first.state == []
    original.sweep([])
    storage_at(place).delete_unfinished("")
    other.commit(first.committables)
    other.discard(first.committables, [])
    assert lines_in(place) == ["a", "b"]
    assert case.leftovers() == []


def test_pieces_of_a_sink_that_had_its_path_elsewhere_are_continued_below_the_new_one(
    place: StorageUrl, tmp_path: Path
) -> None:
    dead = Attempt(row_case(place / "old", GROWING), tmp_path)
    dead.publish(["a"], [])
    state = dead.snapshot(1, flush=False).state
    moved = Attempt(row_case(place / "new", GROWING), tmp_path, "a2", state)
    moved.publish(["b"], [])
    moved.commit(moved.snapshot(2).committables)
    assert lines_in(place / "new") == ["a", "b"]


def test_a_lost_piece_of_a_growing_file_is_found_when_it_is_restored(
    s3: S3Server, place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(place, GROWING)
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], [])
    state = dead.snapshot(1, flush=False).state
    next((s3.buckets / BUCKET / place.path).rglob("*.piece")).unlink()
    with pytest.raises(LostStagedFileError, match=r"s3://files/.*\.piece has 0 bytes"):
        Attempt(case, tmp_path, "a2", state)


def test_a_savepoint_is_committed_by_a_job_whose_sink_has_its_path_elsewhere(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], [])
    savepoint = dead.snapshot(1).committables
    on_disk = row_files(tmp_path / "disk", ROLLING)
    there = Attempt(on_disk, tmp_path, job="other", storage_options=place.options)
    assert there.commit(savepoint).committed == 1
    assert case.shown() == ["a"]
    there.publish(["b"], [])
    back = Attempt(case, tmp_path, job="third")
    assert back.commit(there.snapshot(1).committables).committed == 1
    assert on_disk.shown() == ["b"]


def test_a_sink_that_has_moved_to_a_store_refuses_unfinished_files_on_a_disk(
    place: StorageUrl, tmp_path: Path
) -> None:
    dead = Attempt(row_files(tmp_path / "disk", GROWING), tmp_path)
    dead.publish(["a"], [])
    state = dead.snapshot(1, flush=False).state
    with pytest.raises(RestoreMismatchError, match="restore a savepoint, which has no unfinished"):
        Attempt(row_case(place, GROWING), tmp_path, "a2", state)


@pytest.mark.parametrize(
    ("final", "source", "deletes"),
    [
        ("s3://other-bucket/x", "", ""),
        ("s3://files/elsewhere", "", ""),
        ("{base}/.staging-job/x", "", ""),
        ("{base}", "", ""),
        ("/etc/passwd", "", ""),
        ("", "{base}/x", ""),
        ("", "{base}/.staging-job/step/b1/x", ""),
        ("", "{base}/.staging-job/other/a1/x", ""),
        ("", "", "{base}/x"),
    ],
)
def test_a_forged_committable_names_nothing_outside_of_the_sinks_path(
    case: Case, place: StorageUrl, tmp_path: Path, final: str, source: str, deletes: str
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    (part,) = parts_of(attempt.snapshot().committables)
    (piece,) = part.sources
    forged = msgspec.structs.replace(
        part,
        final=final.format(base=place) or part.final,
        sources=[piece._replace(path=source.format(base=place) or piece.path)],
        pieces=[deletes.format(base=place) or piece.path],
    )
    with pytest.raises(CommitFailedError, match="which is not inside"):
        attempt.commit([encode(forged)])
    assert finished(place) == []


def test_no_credentials_are_in_what_a_checkpoint_holds(
    case: Case, s3: S3Server, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(row_case(place, GROWING), tmp_path)
    staged = [attempt.stage(0, ["a"]), b""]
    attempt.take(staged)
    state = attempt.snapshot(1, flush=False).state
    committables = attempt.snapshot(2, flush=True).committables
    held = b"".join([*staged, *state, *committables])
    assert str(place).encode() in held
    assert s3.secret_key.encode() not in held
    sink, source = row_sink(place, ROLLING), source_of(place)
    for shown in (sink._settings, source._files, source._files.settings):
        assert s3.secret_key not in repr(shown)


def test_a_task_that_fails_leaves_no_piece(case: Case, place: StorageUrl, tmp_path: Path) -> None:
    attempt = Attempt(case, tmp_path)
    writer = attempt.writer(0)
    writer.write("a")
    writer.abort()
    finished_writer = attempt.writer(1)
    finished_writer.write("b")
    finished_writer.stage()
    assert len(case.leftovers()) == 1
    finished_writer.abort()
    assert case.leftovers() == []
    attempt.stage(0, ["a"])
    attempt.stage(1, ["b"])
    attempt.publisher.discard_staged("a1-0-")
    assert case.leftovers() == []


def test_a_piece_that_does_not_fit_on_the_hosts_disk_is_an_error_and_leaves_nothing(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_part_files, "_IN_MEMORY", 1000)
    writer = Attempt(case, tmp_path).writer(0)
    writer.write("a" * 2000)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            writer.write("a" * 60_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    assert str(caught.value.filename).startswith("s3://files/")
    writer.abort()
    assert case.leftovers() == []


def test_buckets_are_prefixes_and_names_are_those_of_files(
    place: StorageUrl, tmp_path: Path
) -> None:
    builder = FileSink.for_row_format(str(place), Encoder.simple_string_encoder())
    sink = builder.build().with_storage_options(place.options)
    attempt = Attempt(Case(sink, list), tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.commit(attempt.snapshot().committables)
    names = finished(place)
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert len(names) == 2
    assert all(re.fullmatch(rf"\d{{4}}-\d\d-\d\d--\d\d/part-{uuid}-0", name) for name in names)


def test_a_sink_in_a_store_needs_no_directory_that_hosts_share(place: StorageUrl) -> None:
    assert row_sink(place, ROLLING).paths_on_hosts() == ()
    assert source_of(place).paths_on_hosts() == []


def test_many_small_files_of_a_bulk_format_become_one(s3: S3Server, tmp_path: Path) -> None:
    case = parquet_case(s3, tmp_path)
    attempt = Attempt(case, tmp_path)
    for number in range(3):
        attempt.publish([str(number)], [])
    committables = attempt.snapshot().committables
    (part,) = parts_of(committables)
    assert len(part.sources) == 1
    assert len(part.pieces) == 4
    attempt.commit(committables)
    assert case.shown() == ["0", "1", "2"]
    assert case.leftovers() == []


# -- sources ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def source_of(place: StorageUrl, *names: str, watch: bool = False) -> FileSource:
    paths = [str(place / name) for name in names] or [str(place)]
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths)
    if watch:
        builder = builder.monitor_continuously(Duration.of_seconds(1))
    return builder.build().with_settings(InputSettings(storage_options=place.options))


def opened(
    source: FileSource,
    clock: Clock | None = None,
    positions: dict[str, int] | None = None,
    state: bytes = b"",
) -> SourceEnumerator:
    clock = clock or Clock()
    context = EnumeratorContext(2, Path("none"), clock, lambda: None, monotonic=clock)
    enumerator = source.enumerator(context)
    if state:
        enumerator.restore_state(state)
    enumerator.start(positions or {})
    return enumerator


def read(source: FileSource, plan: Any) -> list[str]:
    return [
        line
        for ranges in plan
        for split_range in ranges
        for chunk in source.read_lists(split_range)
        for line in chunk
    ]


def test_hidden_objects_and_what_is_below_hidden_names_are_left_out(place: StorageUrl) -> None:
    storage = storage_at(place)
    for name in (".hidden", "_hidden", "_dir/a", "b/.c", "b/d", "a", ".staging-x/step/a1/piece"):
        storage.replace(name, name.encode())
    source = source_of(place)
    assert read(source, opened(source).plan(100)) == ["a", "b/d"]
    # The hidden part of the path itself is the user's choice.
    hidden = source_of(place, "_dir", ".hidden")
    assert read(hidden, opened(hidden).plan(100)) == [".hidden", "_dir/a"]


def test_names_that_begin_alike_are_no_directory(place: StorageUrl) -> None:
    storage_at(place).replace("in/a", b"a")
    storage_at(place).replace("in-not/b", b"b")
    source = source_of(place, "in")
    assert read(source, opened(source).plan(100)) == ["a"]


def test_a_place_without_objects_is_missing_unless_it_is_watched(place: StorageUrl) -> None:
    with pytest.raises(MissingPathError, match="s3://files/"):
        opened(source_of(place, "no such place"))
    clock = Clock()
    source = source_of(place, "later", watch=True)
    enumerator = opened(source, clock)
    assert enumerator.plan(100) == []
    storage_at(place).replace("later/a", b"a")
    clock.now = 1.0
    assert read(source, enumerator.plan(100)) == ["a"]


def test_a_compressed_object_is_read_as_a_whole(place: StorageUrl) -> None:
    lines = [os.urandom(20).hex() for _ in range(5000)]
    storage_at(place).replace("a.gz", gzip.compress("\n".join(lines).encode()))
    source = source_of(place)
    assert read(source, opened(source).plan(10**9)) == lines


def test_ranges_of_a_large_object_are_read_with_few_requests(
    proxy: FaultyS3, place: StorageUrl
) -> None:
    lines = [f"{n:08}{'x' * 91}" for n in range(400_000)]
    storage_at(place).write("a", [("\n".join(lines) + "\n").encode()])
    source = source_of(through(proxy, place))
    plan = opened(source).plan(10**9)
    proxy.counted()
    assert read(source, plan) == lines
    requests = proxy.counted()
    assert requests.count("HEAD") == 4
    assert requests.count("GET") < 20, requests


def test_a_connection_that_breaks_is_resumed(proxy: FaultyS3, place: StorageUrl) -> None:
    lines = [f"{n:08}{'x' * 91}" for n in range(60_000)]
    storage_at(place).write("a", ["\n".join(lines).encode()])
    source = source_of(through(proxy, place))
    plan = opened(source).plan(10**9)
    proxy.once(Fault(cuts_after=700_000), "GET", times=2)
    assert read(source, plan) == lines


@pytest.mark.parametrize(
    "new", [b"other", b"longer than before", b"x"], ids=["same", "more", "less"]
)
def test_an_object_that_is_replaced_while_it_is_read_is_named(
    place: StorageUrl, new: bytes
) -> None:
    storage = storage_at(place)
    storage.replace("a", b"first")
    source = source_of(place)
    plan = opened(source).plan(100)
    storage.replace("a", new)
    with pytest.raises(ChangedFileError, match=r"s3://files/.*/a"):
        read(source, plan)


def test_an_object_that_is_replaced_after_its_first_bytes_were_read_is_named(
    proxy: FaultyS3, place: StorageUrl
) -> None:
    storage = storage_at(place)
    data = b"\n".join(b"%08d" % n for n in range(400_000))
    storage.write("a", [data])
    source = source_of(through(proxy, place))
    plan = opened(source).plan(10**9)
    replaced = data.replace(b"0", b"9")

    def change() -> None:
        proxy.choose = lambda _: None
        storage.write("a", [replaced])

    proxy.once(Fault(then=change), "GET")
    with pytest.raises(ChangedFileError):
        read(source, plan)


def test_a_restored_job_continues_in_the_same_object_and_in_no_other(place: StorageUrl) -> None:
    lines = [f"{n:08}{'x' * 91}" for n in range(10_000)]
    data = "\n".join(lines).encode()
    storage_at(place).replace("a", data)
    source = source_of(place)
    first = opened(source)
    begin = read(source, first.plan(3000))
    positions, state = first.positions(), first.snapshot_state()
    assert 0 < len(begin) < len(lines)
    # The same content again, as in a copy of the bucket.
    storage_at(place).replace("a", data)
    second = opened(source, positions=positions, state=state)
    rest = []
    while not second.finished():
        rest += read(source, second.plan(3000))
    assert begin + rest == lines
    storage_at(place).replace("a", data.replace(b"0", b"1"))
    with pytest.raises(ChangedFileError, match="another file has its name"):
        opened(source, positions=positions, state=state)
    accepting = source.with_settings(replace(source._files.settings, accepts_changed_files=True))
    opened(accepting, positions=positions, state=state)


def test_a_watched_place_forgets_objects_that_were_removed(place: StorageUrl) -> None:
    clock, storage = Clock(), storage_at(place)
    source = source_of(place, watch=True)
    storage.replace("a", b"a")
    enumerator = opened(source, clock)
    assert read(source, enumerator.plan(100)) == ["a"]
    one = len(enumerator.snapshot_state())
    storage.delete("a")
    storage.replace("b", b"b")
    clock.now = 1.0
    assert read(source, enumerator.plan(100)) == ["b"]
    state = enumerator.snapshot_state()
    assert len(state) <= one
    enumerator.notify_state_complete(state)
    storage.replace("a", b"again")
    clock.now = 2.0
    assert read(source, enumerator.plan(100)) == ["again"]
    restored = opened(source, clock, enumerator.positions(), enumerator.snapshot_state())
    clock.now = 3.0
    assert restored.plan(100) == []


def test_a_store_that_does_not_answer_is_no_damaged_file(
    proxy: FaultyS3, place: StorageUrl
) -> None:
    storage_at(place).replace("a", b"a")
    source = source_of(through(proxy, place, retry_timeout="300 ms"))
    plan = opened(source).plan(100)
    proxy.choose = lambda r: Fault(status=503) if r.method == "GET" else None
    with pytest.raises(OSError, match=r"busy or has failed.*s3://files/"):
        read(source, plan)
