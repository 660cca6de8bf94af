"""State is read from checkpoints of every backend, and from savepoints, as it was written."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import CheckpointCompletedEntry, CommitsStarted
from penstock.errors import (
    BadCursorError,
    KeyNotOfTypeError,
    NoCheckpointError,
    NotASnapshotError,
    UnknownCheckpointError,
    UnknownOperatorError,
    UnknownStateError,
)
from penstock.ids import JobKey
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.look_up import Cursor, OpenOperator
from penstock.snapshots.reading import completed_checkpoints, open_pinned, reading
from penstock.snapshots.stored_snapshot import (
    StoredSnapshot,
    open_snapshot,
    opened_part,
    state_named,
)
from penstock.storage.local_storage import LocalStorage
from tests.golden.programs import states
from tests.unit.snapshots.json_rows import json_rows, page_of, rows_of_key

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs" / "v1"
READABLE = {"key", "map_key", "value", "window_start", "window_end", "window"}
BOOK = "KEYED PROCESS"


def snapshot(name: str) -> StoredSnapshot:
    """Return the snapshot of the golden program with all kinds of state."""
    if name == "savepoint":
        (path,) = (GOLDEN / name).rglob("savepoint-*/_metadata")
        return open_snapshot(path)
    job = JobDir(GOLDEN / name / "checkpoints", JobKey(states.JOB))
    return open_snapshot(job.from_journal_path(completed_checkpoints(job)[0].path))


@pytest.fixture(params=["hashmap", "rocksdb", "memory", "savepoint"])
def stored(request: pytest.FixtureRequest) -> StoredSnapshot:
    return snapshot(request.param)


@contextmanager
def opened(
    stored: StoredSnapshot, operator: str = BOOK
) -> Iterator[tuple[OpenOperator, list[KeyedState]]]:
    found = stored.operator(operator)
    parts = stored.parts(found)
    with contextlib.ExitStack() as stack:
        all_open = [stack.enter_context(opened_part(part)) for part in parts]
        names = stored.keyed_states(found, all_open)
        yield OpenOperator(all_open, [part.key_groups for part in parts]), names


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name in READABLE} for row in rows]


def values_of(key: int) -> list[int]:
    return [n for n in range(states.CUT) if states.key_of(n) == key]


@pytest.mark.parametrize("key", range(states.KEYS))
def test_a_key_has_in_every_state_what_the_input_says(stored: StoredSnapshot, key: int) -> None:
    numbers = values_of(key)
    total = sum(numbers)
    even = sum(1 for n in numbers if n // states.KEYS % 2 == 0)
    expected: dict[str, list[dict[str, Any]]] = {
        "count": [{"key": key, "value": len(numbers)}],
        "last": [{"key": key, "value": numbers[-3:]}],
        "seen": [
            {"key": key, "map_key": "even", "value": even},
            {"key": key, "map_key": "odd", "value": len(numbers) - even},
        ],
        "total": [{"key": key, "value": total}],
        "mean": [{"key": key, "value": {"f0": total, "f1": len(numbers)}}],
        "row": [{"key": key, "value": {"number": numbers[-1], "text": str(numbers[-1])}}],
        "first": [{"key": key, "value": numbers[0]}],
    }
    with opened(stored) as (operator, names):
        found = {s.name: shown(json_rows(rows_of_key(operator, s, key))) for s in names}
        assert {name: found[name] for name in expected} == expected
        (bell,) = found["_timers/processing-time"]
        assert (bell["key"], bell["map_key"]) == (states.BELL, key)
        assert {timer["map_key"] for timer in found["_timers/event-time"]} == {key}
        (raw,) = json_rows(
            rows_of_key(operator, state_named(names, stored.operator(BOOK), "raw"), key)
        )
        assert raw["value"].keys() == {"base64"}
        (kept,) = json_rows(
            rows_of_key(operator, state_named(names, stored.operator(BOOK), "kept"), key)
        )
        assert kept["value"].keys() == {"base64"}, "pickled values are never unpickled"


def test_windows_are_columns(stored: StoredSnapshot) -> None:
    with opened(stored, "TumblingEventTimeWindows") as (operator, names):
        rows = [row for s in names for row in json_rows(page_of(operator, s, 1000).rows)]
    windows = {(row["window_start"], row["window_end"]) for row in rows if "window_start" in row}
    assert windows
    assert all(stop - start == states.SIZE for start, stop in windows)


def test_pages_of_any_size_have_every_row_once_in_order(stored: StoredSnapshot) -> None:
    for operator in stored.keyed_operators:
        with opened(stored, operator.uid) as (found, names):
            for state in names:
                whole = json_rows(page_of(found, state, 10_000).rows)
                size, cursor, rows = random.Random(state.name).randint(1, 3), None, []
                while True:
                    page = page_of(found, state, size, cursor)
                    assert page.rows.num_rows <= size
                    rows += json_rows(page.rows)
                    if page.next is None:
                        break
                    cursor = Cursor.decode(page.next.encode())
                assert rows == whole
                groups = [row["key_group"] for row in rows]
                assert groups == sorted(groups)


def test_parts_together_have_what_pages_have(stored: StoredSnapshot) -> None:
    operator = stored.operator(BOOK)
    for part in stored.parts(operator):
        with opened_part(part) as one:
            for state in stored.keyed_states(operator):
                for table in one.tables(state, b"", None):
                    assert table.schema == state.schema
                    groups = set(table.column("key_group").to_pylist())
                    assert all(group in part.key_groups for group in groups)


@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "memory", "savepoint"])
def test_all_snapshots_of_one_program_read_the_same(name: str) -> None:
    def contents(stored: StoredSnapshot) -> dict[str, Any]:
        with opened(stored) as (operator, names):
            return {
                s.name: (s.kind, s.info.type, shown(json_rows(page_of(operator, s, 10_000).rows)))
                for s in names
            }

    assert contents(snapshot(name)) == contents(snapshot("hashmap"))


def test_a_key_that_does_not_exist_has_no_rows(stored: StoredSnapshot) -> None:
    with opened(stored) as (operator, names):
        assert [rows_of_key(operator, state, 99).num_rows for state in names] == [0] * len(names)


@pytest.mark.parametrize("key", ["three", [3], {"a": 1}, 2**70])
def test_a_key_of_another_type_is_refused(stored: StoredSnapshot, key: Any) -> None:
    with opened(stored) as (operator, names), pytest.raises(KeyNotOfTypeError, match="Long"):
        rows_of_key(operator, names[2], key)


def test_unknown_names_are_errors_that_list_the_known_ones(stored: StoredSnapshot) -> None:
    with pytest.raises(UnknownOperatorError, match=r"KEYED PROCESS"):
        stored.operator("book")
    with pytest.raises(UnknownStateError, match=r"count, first, kept"):
        stored.keyed_state(stored.operator(BOOK), "counts")


def test_a_path_that_is_neither_snapshot_nor_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotASnapshotError, match="no checkpoint, savepoint or job"):
        open_pinned(tmp_path)
    (tmp_path / "job" / "journal").mkdir(parents=True)
    with pytest.raises(NoCheckpointError, match="no completed checkpoint yet"):
        open_pinned(tmp_path / "job")
    with pytest.raises(UnknownCheckpointError, match="no checkpoint 7"):
        open_pinned(GOLDEN / "hashmap" / "checkpoints" / states.JOB, 7)


@pytest.mark.parametrize("text", ["", "x", "AA", "not a cursor!", "ä"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadCursorError):
        Cursor.decode(text)


def test_a_checkpoint_is_pinned_while_it_is_read_and_a_savepoint_is_not(tmp_path: Path) -> None:
    job = tmp_path / "checkpoints" / states.JOB
    shutil.copytree(GOLDEN / "hashmap" / "checkpoints" / states.JOB, job)
    with reading(job) as found:
        assert found.pin is not None
        assert [path.name for path in (job / "pins").iterdir()] == [found.pin.name]
        with reading(found.snapshot.directory) as again:
            assert again.snapshot.metadata == found.snapshot.metadata
            assert len(list((job / "pins").iterdir())) == 2
    assert list((job / "pins").iterdir()) == []
    with reading(snapshot("savepoint").directory) as saved:
        assert saved.pin is None


def test_what_cannot_be_pinned_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / states.JOB
    shutil.copytree(GOLDEN / "hashmap" / "checkpoints" / states.JOB, job)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(LocalStorage, "replace", refuse)
    with reading(job) as found:
        assert found.pin is None
        assert found.snapshot.keyed_operators


def test_a_savepoint_that_was_moved_away_does_not_hide_the_checkpoints(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(GOLDEN / "hashmap" / "checkpoints" / states.JOB, root / states.JOB)
    job = JobDir(root, JobKey(states.JOB))
    newest = completed_checkpoints(job)[0].checkpoint
    journal = Journal(job.storage, job.key)
    journal.entries()
    attempt = journal.state().attempts[-1].attempt
    saved = CheckpointCompletedEntry(newest + 1, attempt, "/gone/savepoint", True, 1, 2.0)
    journal.adopt(attempt)
    journal.append(saved)
    journal.append(CommitsStarted(newest + 1, attempt, 3.0))
    assert completed_checkpoints(job)[0].savepoint, "the job would resume from the savepoint"
    with reading(root / states.JOB) as found:
        assert found.snapshot.metadata.checkpoint == newest
