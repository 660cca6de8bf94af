"""Rows as tasks stage them."""

import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Row, Types
from penstock.common.types import RowKind
from penstock.connectors.contracts.sink import WriterContext
from penstock.connectors.postgres.rows.writer import (
    PostgresWriter,
    RowLayout,
    StagedRows,
    decode_staged,
)
from penstock.connectors.postgres.transactions.committable import decode_committable
from penstock.connectors.postgres.transactions.publisher import PendingRows
from penstock.connectors.staging.staged_output import (
    MAX_INLINE_BYTES,
    Spool,
    StagedOutput,
    read_staged,
)
from penstock.connectors.staging.staging_directory import StagingDirectory
from penstock.errors import (
    CorruptStagedRecordsError,
    LostStagedFileError,
    UnsuitableTableError,
    UnwritableValueError,
)

NAMED = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def writer(
    directory: Path,
    columns: tuple[str, ...] | None = ("id", "name"),
    type_info: Any = None,
    *,
    deletes: bool = False,
    name: str = "a1-1-0-0-0",
) -> PostgresWriter:
    json_columns = frozenset({"doc"}) if columns and "doc" in columns else frozenset[str]()
    layout = RowLayout("orders", columns, json_columns, deletes)
    context = WriterContext(0, 1, directory / "staging", name, type_info, "job", "a1", directory)
    return PostgresWriter(layout, context)


def staged(writer: PostgresWriter, *records: Any) -> StagedRows:
    for record in records:
        writer.write(record)
    return decode_staged(writer.stage())


def data(rows: StagedRows, root: Path = Path()) -> bytes:
    return b"".join(read_staged(root, [rows.output]))


@pytest.mark.parametrize(
    "record",
    [
        (1, "a"),
        [1, "a"],
        Row(1, "a"),
        Row(name="a", id=1),
        {"name": "a", "id": 1},
        {"name": "a", "id": 1, "more": 2},
    ],
)
def test_records_of_all_kinds_are_written_to_the_named_columns(tmp_path: Path, record: Any) -> None:
    rows = staged(writer(tmp_path), record)
    assert (rows.columns, rows.rows, data(rows)) == (("id", "name"), 1, b"1\ta\n")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ((1,), r"needs 2 values \(id, name\)"),
        ((1, "a", 3), "needs 2 values"),
        ({"id": 1}, "column 'name' cannot store .* no field of that name"),
        (Row(id=1, more=2), "column 'name' cannot store .* no field of that name"),
        (1, "needs 2 values"),
        ((1, object()), "column 'name' cannot store"),
        (Row.of_kind(RowKind.DELETE, 1, "a"), r"kind -D .*set_key_columns"),
        (Row.of_kind(RowKind.UPDATE_AFTER, 1, "a"), r"kind \+U .*set_key_columns"),
    ],
)
def test_records_that_do_not_match_are_rejected(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(UnwritableValueError, match=message):
        writer(tmp_path).write(record)


def test_a_row_type_names_the_columns(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, None, NAMED), Row(1, "a"), Row(id=2, name="b"))
    assert (rows.columns, data(rows)) == (("id", "name"), b"1\ta\n2\tb\n")


def test_a_row_type_gives_the_positions_of_the_named_columns(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, ("name",), NAMED), Row(1, "a"))
    assert data(rows) == b"a\n"
    with pytest.raises(UnsuitableTableError, match="no field 'price', only id, name"):
        writer(tmp_path, ("price",), NAMED)


def test_records_without_names_are_written_to_all_columns(tmp_path: Path) -> None:
    unnamed = Types.ROW([Types.INT(), Types.STRING()])
    rows = staged(writer(tmp_path, None, unnamed), Row(1, "a"))
    assert (rows.columns, rows.width) == (None, 2)
    assert staged(writer(tmp_path, None), "text").width == 1
    with pytest.raises(UnwritableValueError, match="set_columns"):
        writer(tmp_path, None).write({"a": 1})
    one = writer(tmp_path, None)
    one.write((1, 2))
    with pytest.raises(UnwritableValueError, match="needs 2 values; this one has 3"):
        one.write((1, 2, 3))


def test_json_columns_need_names(tmp_path: Path) -> None:
    layout = RowLayout("orders", None, frozenset({"doc"}), deletes=False)
    with pytest.raises(UnsuitableTableError, match="use set_columns"):
        PostgresWriter(layout, WriterContext(0, 1, tmp_path, "a1-1-0-0-0"))


def test_columns_with_arrays_are_reported(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, ("id", "tags", "doc")), (1, "{}", []), (2, (), [1]))
    assert rows.arrays == (1,)


def test_row_kinds_become_a_delete_flag(tmp_path: Path) -> None:
    rows = staged(
        writer(tmp_path, deletes=True),
        (1, "a"),
        Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a"),
        Row.of_kind(RowKind.UPDATE_AFTER, 1, "b"),
        Row.of_kind(RowKind.DELETE, 1, "b"),
    )
    assert (rows.rows, data(rows)) == (3, b"f\t1\ta\nf\t1\tb\nt\t1\tb\n")


def test_few_rows_are_inline_and_many_are_in_a_file(tmp_path: Path) -> None:
    few = staged(writer(tmp_path), (1, "a"))
    assert (few.output.name, list(tmp_path.iterdir())) == ("", [])
    many = staged(writer(tmp_path), *((n, "x" * 50) for n in range(20_000)))
    assert many.output.data == b""
    written = data(many, tmp_path)
    assert many.output.size == many.output.path(tmp_path).stat().st_size == len(written)
    assert written.splitlines()[-1] == b"19999\t" + b"x" * 50
    assert writer(tmp_path).stage() == b""


def test_an_aborted_writer_leaves_no_file(tmp_path: Path) -> None:
    aborted = writer(tmp_path)
    for number in range(20_000):
        aborted.write((number, "x" * 50))
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    aborted.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_has_changed_is_rejected(tmp_path: Path) -> None:
    many = staged(writer(tmp_path), *((n, "x" * 50) for n in range(20_000)))
    path = many.output.path(tmp_path)
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)
    with pytest.raises(CorruptStagedRecordsError, match=re.escape(f"{path} are damaged")):
        data(many, tmp_path)
    path.write_bytes(b"1\ta\n")
    with pytest.raises(LostStagedFileError):
        data(many, tmp_path)


def test_a_spooled_file_has_a_checksum_too(tmp_path: Path) -> None:
    spool = Spool(StagingDirectory(tmp_path, "a1"), "spool")
    lines = [f"{number}\n".encode() * 999 for number in range(20)]
    for line in lines:
        spool.add(line)
    output = spool.finish()
    assert output.crc == zlib.crc32(b"".join(lines))
    assert b"".join(read_staged(tmp_path, [output])) == b"".join(lines)


def test_committables_without_a_checksum_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "work" / "a1" / "0.rows"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1\n")
    old = msgspec.msgpack.encode(("gid", "t", "t", [(("a",), 1, [(2, b"", str(path))])], True))
    committable = decode_committable(old).moved(tmp_path / "work")
    assert committable.paths == [path]
    assert b"".join(read_staged(Path(committable.root), committable.outputs)) == b"1\n"


def test_pending_rows_of_any_size_stay_in_order(tmp_path: Path) -> None:
    pending = PendingRows(StagingDirectory(tmp_path, "a1"))
    sizes = [1, MAX_INLINE_BYTES // 2, MAX_INLINE_BYTES // 2, 5, MAX_INLINE_BYTES + 1, 3]
    expected = b""
    for number, size in enumerate(sizes):
        text = f"{number}{'x' * size}"
        rows = staged(writer(tmp_path, ("t",), name=f"a1-{number}"), text)
        pending.add(0, ("t",), rows)
        pending.add(1, ("t",), rows)
        expected += text.encode() + b"\n"
    taken = pending.take()
    assert list(taken) == [0, 1]
    (batch,) = taken[0]
    assert (batch.rows, b"".join(read_staged(tmp_path, batch.outputs))) == (len(sizes), expected)
    assert sum(len(output.data) for output in batch.outputs) <= 2 * MAX_INLINE_BYTES
    assert pending.take() == {}


def test_different_columns_start_a_new_batch(tmp_path: Path) -> None:
    pending = PendingRows(StagingDirectory(tmp_path, "a1"))
    for columns in (("a",), ("a",), ("b",)):
        pending.add(0, columns, StagedRows(columns, 1, 1, StagedOutput(2, b"1\n"), ()))
    assert [(b.columns, b.rows) for b in pending.take()[0]] == [(("a",), 2), (("b",), 1)]


def row_file(directory: Path, attempt: str, name: str) -> Path:
    relative, file = StagingDirectory(directory, attempt).create(name)
    with file:
        file.write(b"1\n")
    return directory / relative


def test_a_sweep_keeps_referenced_files_and_those_of_later_attempts(tmp_path: Path) -> None:
    paths = {a: row_file(tmp_path, a, "x") for a in ("a1", "a2", "a3")}
    kept = row_file(tmp_path, "a1", "kept")
    StagingDirectory(tmp_path, "a2").sweep([kept])
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted([kept, paths["a3"]])


def test_files_of_another_job_are_not_removed(tmp_path: Path) -> None:
    theirs, mine = (row_file(tmp_path / name, "a1", "x") for name in ("theirs", "mine"))
    StagingDirectory(tmp_path / "mine", "a1").remove([theirs, mine])
    assert (theirs.exists(), mine.exists()) == (True, False)
