"""Snapshots of a streaming query's files, and the rows it has logged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.connectors.contracts.snapshot_files import verify_snapshot_files
from penstock.connectors.contracts.source import SplitRange
from penstock.spark.sources.query_files import NONE_COMMITTED, QueryFiles, last_committed, seed
from penstock.spark.sources.stream_log import LoggedFile, ranges_of, read_range


def query_behind(directory: Path, batch: int) -> Path:
    """A query that has counted a batch and works on the next one."""
    names = ["metadata", "sources/0/0", "state/0/0/1.delta", "state/0/0/.1.delta.crc"]
    names += [f"offsets/{n}" for n in range(batch + 2)] + [f"commits/{n}" for n in range(batch + 1)]
    names += [f"offsets/.{batch + 1}.crc", f"commits/.{batch + 1}.uuid.tmp"]
    names += [f"commits/..{batch + 1}.uuid.tmp.crc"]
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} then")
    return directory


def names_in(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_the_last_committed_batch_is_found(tmp_path: Path) -> None:
    assert last_committed(tmp_path / "nothing") == NONE_COMMITTED
    assert last_committed(query_behind(tmp_path / "query", 11)) == 11


def test_a_snapshot_has_no_later_batches(tmp_path: Path) -> None:
    query = query_behind(tmp_path / "query", 1)
    files = QueryFiles(query).snapshot(tmp_path / "kept", 1)
    kept = names_in(tmp_path / "kept")
    assert kept == names_in(query) - {
        "offsets/2",
        "offsets/.2.crc",
        "commits/.2.uuid.tmp",
        "commits/..2.uuid.tmp.crc",
    }
    assert {file.name for file in files} == kept
    verify_snapshot_files(tmp_path / "kept", files)
    # One batch back: a batch that was counted in the meantime is left out too.
    QueryFiles(query).snapshot(tmp_path / "older", 0)
    assert names_in(tmp_path / "older") == kept - {"offsets/1", "commits/1"}


def test_a_snapshot_stays_when_the_query_replaces_its_files(tmp_path: Path) -> None:
    query = query_behind(tmp_path / "query", 0)
    QueryFiles(query).snapshot(tmp_path / "kept", 0)
    new = query / "offsets" / "new.tmp"
    new.write_text("now")
    new.rename(query / "offsets" / "0")
    (query / "commits" / "0").unlink()
    seed(tmp_path / "kept", tmp_path / "seeded")
    assert names_in(tmp_path / "seeded") == names_in(tmp_path / "kept")
    assert (tmp_path / "seeded" / "offsets" / "0").read_text() == "offsets/0 then"
    assert last_committed(tmp_path / "seeded") == 0


def test_another_file_under_the_same_name_is_described_again(tmp_path: Path) -> None:
    query = query_behind(tmp_path / "query", 0)
    files = QueryFiles(query)
    files.snapshot(tmp_path / "first", 0)
    (query / "new.tmp").write_text("now")
    (query / "new.tmp").rename(query / "offsets" / "0")
    verify_snapshot_files(tmp_path / "second", files.snapshot(tmp_path / "second", 0))


def test_a_file_that_grows_in_place_does_not_change_in_the_snapshot(tmp_path: Path) -> None:
    query = query_behind(tmp_path / "query", 0)
    table = query / "state" / "0" / "0" / "SSTs" / "1.sst"
    table.parent.mkdir()
    table.write_text("half")
    files = QueryFiles(query)
    first = files.snapshot(tmp_path / "first", 0)
    with table.open("a") as more:
        more.write(" and half")
    second = files.snapshot(tmp_path / "second", 0)
    third = files.snapshot(tmp_path / "third", 0)
    for directory, kept in (("first", first), ("second", second), ("third", third)):
        verify_snapshot_files(tmp_path / directory, kept)
    assert (tmp_path / "third" / "state" / "0" / "0" / "SSTs" / "1.sst").samefile(table)


def test_files_that_disappear_during_a_snapshot_are_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_behind(tmp_path / "query", 0)
    files = QueryFiles(query)
    link = files._link
    calls: list[Path] = []

    def compact_at_first(name: Path, path: Path) -> None:
        if not calls:
            (query / "sources" / "0" / "0").rename(query / "sources" / "0" / "0.compact")
            calls.append(path)
            raise FileNotFoundError(path)
        link(name, path)

    monkeypatch.setattr(files, "_link", compact_at_first)
    files.snapshot(tmp_path / "kept", 0)
    assert "sources/0/0.compact" in names_in(tmp_path / "kept")
    assert "sources/0/0" not in names_in(tmp_path / "kept")


def test_rows_are_split_into_contiguous_shares_over_files(tmp_path: Path) -> None:
    named = [("a", 10, 4), ("b", 14, 1), ("c", 15, 7)]
    files = [LoggedFile(name, first, rows, 0, 0) for name, first, rows in named]
    plan = ranges_of(files, tmp_path, 12, 20, 3)
    shares = [[(Path(r.split).name, r.start, r.end) for r in share] for share in plan]
    assert shares == [[("a", 2, 4), ("b", 0, 1)], [("c", 0, 3)], [("c", 3, 5)]]


def test_a_range_is_read_across_the_batches_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    schema = pa.schema([("n", pa.int64())])
    with pa.ipc.new_file(str(path), schema) as file:
        for start in (0, 10, 20):
            file.write_batch(pa.record_batch([pa.array(range(start, start + 10))], schema=schema))
    for start, end in [(0, 30), (3, 7), (9, 21), (20, 30), (5, 5)]:
        read = read_range(SplitRange(str(path), start, end))
        assert [n for batch in read for n in batch["n"].to_pylist()] == list(range(start, end))
