"""File sources and sinks whose files are in a real HDFS."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.common import Row
from penstock.common.storage_url import StorageUrl
from penstock.connectors.files.rolling_policy import RollingPolicy
from penstock.errors import ChangedFileError, CommitFailedError
from penstock.storage.hdfs_storage import HdfsStorage
from penstock.storage.storages import storage_at
from penstock.testing.servers.hdfs_server import HdfsServer
from tests.contracts.sink_harness import Attempt, Case
from tests.servers.file_sink_case import (
    ROWS,
    finished,
    leftovers,
    lines_in,
    parquet_sink,
    row_case,
)
from tests.servers.test_files_in_s3 import opened, read, source_of

pytestmark = pytest.mark.hdfs

GROWING = RollingPolicy.default_rolling_policy(part_size=60 << 20)
ROLLING = RollingPolicy.on_checkpoint_rolling_policy()


@pytest.fixture
def place(hdfs: HdfsServer) -> StorageUrl:
    return hdfs.url(f"files/{uuid.uuid4().hex}")


@pytest.fixture
def case(place: StorageUrl) -> Iterator[Case]:
    yield (case := row_case(place, ROLLING))
    case.close()


def test_a_file_appears_at_the_commit_and_once(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], ["b"])
    attempt.publish(["c"], [])
    committables = attempt.snapshot().committables
    assert finished(place) == []
    assert attempt.commit(committables).committed == 2
    assert attempt.commit(committables).already_committed == 2
    assert sorted(case.shown()) == ["a", "b", "c"]
    attempt.sweep([])
    assert leftovers(place) == []


def test_a_rename_that_is_answered_twice_has_committed_the_file(
    case: Case, place: StorageUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    give_name = HdfsStorage.give_name

    def twice(self: HdfsStorage, path: str, name: str) -> None:
        give_name(self, path, name)
        give_name(self, path, name)

    monkeypatch.setattr(HdfsStorage, "give_name", twice)
    assert attempt.commit(committables).already_committed == 1
    assert case.shown() == ["a"]


def test_a_file_of_another_origin_is_never_overwritten(
    case: Case, place: StorageUrl, tmp_path: Path
) -> None:
    attempt = Attempt(case, tmp_path)
    attempt.publish(["a"], [])
    committables = attempt.snapshot().committables
    name = "part-" + str(committables[0]).partition("/part-")[2][:38]
    storage_at(place).create(name, b"?")
    with pytest.raises(CommitFailedError, match="another file has that name"):
        attempt.commit(committables)
    storage_at(place).delete(name)
    attempt.commit(committables)
    assert case.shown() == ["a"]


def test_a_piece_that_an_older_checkpoint_holds_stays_when_its_file_is_committed(
    place: StorageUrl, tmp_path: Path
) -> None:
    case = row_case(place, GROWING)
    dead = Attempt(case, tmp_path)
    dead.publish(["a"], [])
    first = dead.snapshot(1, flush=False)
    committables = dead.snapshot(2, flush=True).committables
    dead.commit(committables)
    assert case.shown() == ["a"]
    again = Attempt(case, tmp_path, "a2", first.state)
    again.sweep(first.state)
    again.commit(again.snapshot(3, flush=True).committables)
    assert case.shown() == ["a", "a"]
    again.discard([*first.state, *committables], [])
    again.sweep([])
    assert leftovers(place) == []


def test_parquet_files_are_written_and_read(place: StorageUrl, tmp_path: Path) -> None:
    case = Case(parquet_sink(place), list, record=Row, type_info=ROWS)
    attempt = Attempt(case, tmp_path)
    for number in range(3):
        attempt.publish([str(number)], [])
    attempt.commit(attempt.snapshot().committables)
    (name,) = finished(place)
    table = pq.read_table(io.BytesIO(storage_at(place).read(name)))
    assert table["text"].to_pylist() == ["0", "1", "2"]


def test_text_files_are_read_and_one_that_changes_is_named(place: StorageUrl) -> None:
    lines = [f"{n:08}{'x' * 91}" for n in range(20_000)]
    storage_at(place).write("in/a", ["\n".join(lines).encode()])
    storage_at(place).create("in/_hidden/b", b"b")
    source = source_of(place, "in")
    plan: Any = opened(source).plan(10**9)
    assert read(source, plan) == lines
    storage_at(place).replace("in/a", b"other")
    with pytest.raises(ChangedFileError, match="hdfs://"):
        read(source, plan)
    assert lines_in(place / "in/none") == []
