"""Rows as tasks stage them."""

import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common import Row, Types
from penstock.common.types import RowKind
from penstock.connectors.postgres.committables import decode_owed
from penstock.connectors.postgres.pending_rows import PendingRows
from penstock.connectors.postgres.row_files import (
    LARGEST_INLINE,
    RowFiles,
    RowPiece,
    RowSpool,
    read_blocks,
)
from penstock.connectors.postgres.staged_rows import RowShape, RowWriter, StagedRows, decode_staged
from penstock.connectors.sink import WriterContext
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
) -> RowWriter:
    json_columns = frozenset({"doc"}) if columns and "doc" in columns else frozenset[str]()
    shape = RowShape("orders", columns, json_columns, deletes)
    context = WriterContext(0, 1, directory / "staging", name, type_info, "job", "a1", directory)
    return RowWriter(shape, context)


def staged(writer: RowWriter, *records: Any) -> StagedRows:
    for record in records:
        writer.write(record)
    return decode_staged(writer.stage())


def data(rows: StagedRows, root: Path = Path()) -> bytes:
    return b"".join(read_blocks(root, [rows.piece]))


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
def test_records_of_all_kinds_fill_the_named_columns(tmp_path: Path, record: Any) -> None:
    rows = staged(writer(tmp_path), record)
    assert (rows.columns, rows.rows, data(rows)) == (("id", "name"), 1, b"1\ta\n")


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ((1,), r"needs 2 values \(id, name\)"),
        ((1, "a", 3), "needs 2 values"),
        ({"id": 1}, "column 'name' cannot take .* no field of that name"),
        (Row(id=1, more=2), "column 'name' cannot take .* no field of that name"),
        (1, "needs 2 values"),
        ((1, object()), "column 'name' cannot take"),
        (Row.of_kind(RowKind.DELETE, 1, "a"), r"kind -D .*set_key_columns"),
        (Row.of_kind(RowKind.UPDATE_AFTER, 1, "a"), r"kind \+U .*set_key_columns"),
    ],
)
def test_records_that_do_not_fit_are_refused(tmp_path: Path, record: Any, told: str) -> None:
    with pytest.raises(UnwritableValueError, match=told):
        writer(tmp_path).write(record)


def test_a_row_type_names_the_columns(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, None, NAMED), Row(1, "a"), Row(id=2, name="b"))
    assert (rows.columns, data(rows)) == (("id", "name"), b"1\ta\n2\tb\n")


def test_a_row_type_says_where_the_named_columns_are(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, ("name",), NAMED), Row(1, "a"))
    assert data(rows) == b"a\n"
    with pytest.raises(UnsuitableTableError, match="no field 'price': it has id, name"):
        writer(tmp_path, ("price",), NAMED)


def test_records_without_names_fill_all_columns(tmp_path: Path) -> None:
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
    shape = RowShape("orders", None, frozenset({"doc"}), deletes=False)
    with pytest.raises(UnsuitableTableError, match="use set_columns"):
        RowWriter(shape, WriterContext(0, 1, tmp_path, "a1-1-0-0-0"))


def test_where_lists_became_arrays_is_told(tmp_path: Path) -> None:
    rows = staged(writer(tmp_path, ("id", "tags", "doc")), (1, "{}", []), (2, (), [1]))
    assert rows.arrays == (1,)


def test_kinds_of_rows_become_a_mark_in_front(tmp_path: Path) -> None:
    rows = staged(
        writer(tmp_path, deletes=True),
        (1, "a"),
        Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a"),
        Row.of_kind(RowKind.UPDATE_AFTER, 1, "b"),
        Row.of_kind(RowKind.DELETE, 1, "b"),
    )
    assert (rows.rows, data(rows)) == (3, b"f\t1\ta\nf\t1\tb\nt\t1\tb\n")


def test_few_rows_travel_and_many_lie_in_a_file(tmp_path: Path) -> None:
    few = staged(writer(tmp_path), (1, "a"))
    assert (few.piece.name, list(tmp_path.iterdir())) == ("", [])
    many = staged(writer(tmp_path), *((n, "x" * 50) for n in range(20_000)))
    assert many.piece.data == b""
    written = data(many, tmp_path)
    assert many.piece.size == many.piece.path(tmp_path).stat().st_size == len(written)
    assert written.splitlines()[-1] == b"19999\t" + b"x" * 50
    assert writer(tmp_path).stage() == b""


def test_an_aborted_writer_leaves_no_file(tmp_path: Path) -> None:
    aborted = writer(tmp_path)
    for number in range(20_000):
        aborted.write((number, "x" * 50))
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    aborted.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    many = staged(writer(tmp_path), *((n, "x" * 50) for n in range(20_000)))
    path = many.piece.path(tmp_path)
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)
    with pytest.raises(CorruptStagedRecordsError, match=re.escape(f"{path} are damaged")):
        data(many, tmp_path)
    path.write_bytes(b"1\ta\n")
    with pytest.raises(LostStagedFileError):
        data(many, tmp_path)


def test_a_piece_of_many_small_ones_has_a_checksum_too(tmp_path: Path) -> None:
    spool = RowSpool(RowFiles(tmp_path, "a1"), "spool")
    lines = [f"{number}\n".encode() * 999 for number in range(20)]
    for line in lines:
        spool.add(line)
    piece = spool.finish()
    assert piece.crc == zlib.crc32(b"".join(lines))
    assert b"".join(read_blocks(tmp_path, [piece])) == b"".join(lines)


def test_what_was_written_without_a_checksum_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.rows"
    path.write_bytes(b"1\n")
    old = msgspec.msgpack.encode(("gid", "t", "t", [(("a",), 1, [(2, b"", str(path))])], True))
    owed = decode_owed(old).moved(tmp_path / "work")
    assert owed.paths == [path]
    assert b"".join(read_blocks(Path(owed.root), owed.pieces)) == b"1\n"


def test_what_is_pending_keeps_its_order_whatever_its_size(tmp_path: Path) -> None:
    pending = PendingRows(RowFiles(tmp_path, "a1"))
    sizes = [1, LARGEST_INLINE // 2, LARGEST_INLINE // 2, 5, LARGEST_INLINE + 1, 3]
    expected = b""
    for number, size in enumerate(sizes):
        text = f"{number}{'x' * size}"
        rows = staged(writer(tmp_path, ("t",), name=f"a1-{number}"), text)
        pending.add(0, ("t",), rows)
        pending.add(1, ("t",), rows)
        expected += text.encode() + b"\n"
    cut = pending.cut()
    assert list(cut) == [0, 1]
    (batch,) = cut[0]
    assert (batch.rows, b"".join(read_blocks(tmp_path, batch.pieces))) == (len(sizes), expected)
    assert sum(len(piece.data) for piece in batch.pieces) <= 2 * LARGEST_INLINE
    assert pending.cut() == {}


def test_other_columns_begin_another_batch(tmp_path: Path) -> None:
    pending = PendingRows(RowFiles(tmp_path, "a1"))
    for columns in (("a",), ("a",), ("b",)):
        pending.add(0, columns, StagedRows(columns, 1, 1, RowPiece(2, b"1\n"), ()))
    assert [(b.columns, b.rows) for b in pending.cut()[0]] == [(("a",), 2), (("b",), 1)]


def row_file(directory: Path, attempt: str, name: str) -> Path:
    relative, file = RowFiles(directory, attempt).new(name)
    with file:
        file.write(b"1\n")
    return directory / relative


def test_a_sweep_spares_what_is_kept_and_what_later_attempts_stage(tmp_path: Path) -> None:
    paths = {a: row_file(tmp_path, a, "x") for a in ("a1", "a2", "a3")}
    kept = row_file(tmp_path, "a1", "kept")
    RowFiles(tmp_path, "a2").sweep([kept])
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted([kept, paths["a3"]])


def test_files_of_another_job_are_not_removed(tmp_path: Path) -> None:
    theirs, mine = (row_file(tmp_path / name, "a1", "x") for name in ("theirs", "mine"))
    RowFiles(tmp_path / "mine", "a1").forget([theirs, mine])
    assert (theirs.exists(), mine.exists()) == (True, False)
