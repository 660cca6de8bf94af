import gzip
import itertools
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.connectors.formats import line_files
from penstock.connectors.formats.csv.block_reader import CsvBlockReader
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.errors import (
    InvalidJobError,
    TextDecodingError,
    TypeMismatchError,
    UnreadableFileError,
)
from penstock.table import DataTypes
from tests.unit.connectors.formats.reading import read_lists

WORDS = CsvSchema.builder().add_string_column("word").add_number_column("n").build()


def read(schema: CsvSchema, path: Path, *cuts: int) -> list[Any]:
    reader = cloudpickle.loads(cloudpickle.dumps(CsvReaderFormat.for_schema(schema)))
    places = [0, *cuts, path.stat().st_size]
    chunks = [read_lists(reader, path, a, b) for a, b in itertools.pairwise(places)]
    return list(itertools.chain.from_iterable(itertools.chain.from_iterable(chunks)))


def read_text(schema: CsvSchema, text: str, tmp_path: Path) -> list[Any]:
    path = tmp_path / "file.csv"
    path.write_text(text, newline="")
    return read(schema, path)


def written(schema: CsvSchema, rows: list[Any], path: Path) -> str:
    with path.open("wb") as file:
        writer = CsvBulkWriters.for_schema(schema).create(file)
        for row in rows:
            writer.add_element(row)
        writer.finish()
    return path.read_text()


def test_numbers_and_text_become_named_rows(tmp_path: Path) -> None:
    rows = read_text(WORDS, 'a,1\r\n"b, ""c""",-2\n', tmp_path)
    assert rows == [Row(word="a", n=1), Row(word='b, "c"', n=-2)]
    assert CsvReaderFormat.for_schema(WORDS).type_info() == Types.ROW_NAMED(
        ["word", "n"], [Types.STRING(), Types.LONG()]
    )


def test_every_number_type_of_tables_is_read_as_in_pyflink(tmp_path: Path) -> None:
    builder = CsvSchema.builder()
    for name, kind in (
        ("tinyint", DataTypes.TINYINT()),
        ("smallint", DataTypes.SMALLINT()),
        ("int", DataTypes.INT()),
        ("bigint", DataTypes.BIGINT()),
        ("float", DataTypes.FLOAT()),
        ("double", DataTypes.DOUBLE()),
    ):
        builder.add_number_column(name, kind)
    schema = builder.add_boolean_column("boolean").add_string_column("string").build()
    line = "127,-32767,2147483647,-9223372036854775808,3e38,2e-308,true,string\n"
    (row,) = read_text(schema, line, tmp_path)
    assert row["bigint"] == -(2**63)
    assert row["float"] == pytest.approx(3e38)
    assert row["double"] == 2e-308
    assert (row["boolean"], row["string"]) == (True, "string")
    text = written(schema, [row], tmp_path / "out")
    assert text == "127,-32767,2147483647,-9223372036854775808,3.0E38,2.0E-308,true,string\n"


def test_arrays_have_a_separator_for_each_column(tmp_path: Path) -> None:
    schema = (
        CsvSchema.builder()
        .add_array_column("numbers", ";", DataTypes.INT())
        .add_array_column("flags", ":", DataTypes.BOOLEAN())
        .add_array_column("words", ",")
        .set_column_separator("|")
        .disable_quote_char()
        .build()
    )
    line = "1;2;3|true:false|a,b,c\n"
    rows = read_text(schema, line, tmp_path)
    assert rows == [Row(numbers=[1, 2, 3], flags=[True, False], words=["a", "b", "c"])]
    assert written(schema, rows, tmp_path / "out") == line


def test_comments_and_empty_lines_are_left_out(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("s").set_allow_comments().build()
    rows = read_text(schema, 'a\n# no "row"\n\nb\n"#c"\n', tmp_path)
    assert [row.s for row in rows] == ["a", "b", "#c"]


def test_an_escape_character_takes_the_next_as_it_is(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_string_column("a").add_string_column("b")
    schema = builder.set_escape_char("\\").build()
    rows = read_text(schema, 'string\\,,\\"string2\\"\n', tmp_path)
    assert rows == [Row(a="string,", b='"string2"')]
    assert written(schema, rows, tmp_path / "out") == '"string,","""string2"""\n'
    assert read(schema, tmp_path / "out") == rows


def test_a_quote_character_encloses_what_jackson_encloses(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_string_column("a").add_string_column("b")
    schema = builder.set_column_separator("|").set_quote_char("`").build()
    line = "`string`|`string2`\n"
    rows = read_text(schema, line, tmp_path)
    assert rows == [Row(a="string", b="string2")]
    assert written(schema, rows, tmp_path / "out") == line


def test_only_the_null_value_is_none(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_string_column("s").add_number_column("n")
    schema = builder.set_null_value("-").build()
    rows = read_text(schema, ",1\n-,-\n", tmp_path)
    assert rows == [Row(s="", n=1), Row(s=None, n=None)]
    assert written(schema, rows, tmp_path / "out") == ",1\n-,-\n"


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("cut", [1, 5, 9, 12])
def test_lines_before_the_data_belong_to_no_range(tmp_path: Path, skip: bool, cut: int) -> None:
    builder = CsvSchema.builder().add_columns_from(WORDS).set_use_header()
    schema = builder.set_skip_first_data_row(skip).build()
    path = tmp_path / "file"
    path.write_text("h1,h2\na,1\nb,2\nc,3\n")
    assert [row.word for row in read(schema, path, cut)] == list("abc")[skip:]


def test_a_strict_header_must_name_the_columns(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_columns_from(WORDS).set_use_header().set_strict_headers()
    assert read_text(builder.build(), "word,n\na,1\n", tmp_path) == [Row(word="a", n=1)]
    with pytest.raises(UnreadableFileError, match=r"line 1: the header should be .*'n'"):
        read_text(builder.build(), "word,m\na,1\n", tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("b,two", "field 'n': 'two' is no whole number"),
        ("b", "2 cells are expected, word, n; got 1"),
        ("b,1,2", "2 cells are expected, word, n; got 3"),
        ("b,9223372036854775808", "field 'n': 9223372036854775808 is not of type Long"),
        ("b,0x10", "field 'n': '0x10' is no whole number"),
        ('"b,1', "unexpected end of data"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text(f"a,1\r\n\nx,4\n{line}", newline="")
    with pytest.raises(UnreadableFileError) as caught:
        read(WORDS, path, 5)
    assert caught.value.where == "line 4"
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)


def test_bytes_that_are_no_text_are_named_by_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b"a,1\n\xff,2\n")
    with pytest.raises(TextDecodingError, match="byte 4"):
        read(WORDS, path)


def test_a_cell_of_several_lines_is_read_if_the_file_is_not_divided(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text('"one\ntwo",1\nx,2\n')
    assert read(WORDS, path) == [Row(word="one\ntwo", n=1), Row(word="x", n=2)]
    with pytest.raises(UnreadableFileError, match=r"default_non_splittable|unexpected end"):
        read(WORDS, path, 14)


def test_blocks_end_outside_of_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "_BLOCK_BYTES", 8)
    path = tmp_path / "file.csv"
    path.write_text('x,0\n"one\ntwo\nthree",1\nx,2\n"\n",3\n')
    assert [(row.word, row.n) for row in read(WORDS, path)] == [
        ("x", 0),
        ("one\ntwo\nthree", 1),
        ("x", 2),
        ("\n", 3),
    ]


def test_compressed_files_are_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.csv.gz"
    path.write_bytes(gzip.compress(b"h,h\na,1\nb,2\n"))
    schema = CsvSchema.builder().add_columns_from(WORDS).set_use_header().build()
    assert not CsvReaderFormat.for_schema(schema).splittable(path)
    assert [row.n for row in read(schema, path)] == [1, 2]


cells = st.text(st.sampled_from('ab ,"\n\r;é0x'), max_size=6)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(cells, st.integers(-(2**63), 2**63 - 1), st.booleans())))
def test_rows_are_read_as_written(rows: list[Any], tmp_path_factory: Any) -> None:
    schema = (
        CsvSchema.builder()
        .add_string_column("s")
        .add_number_column("n")
        .add_boolean_column("b")
        .build()
    )
    path = tmp_path_factory.mktemp("csv") / "file"
    written(schema, rows, path)
    assert [tuple(row) for row in read(schema, path)] == rows


def test_an_empty_text_alone_in_its_line_is_read_as_written(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_string_column("s").build()
    assert written(schema, [("",), ("a",)], tmp_path / "file") == '""\na\n'
    assert [row.s for row in read(schema, tmp_path / "file")] == ["", "a"]


lines = st.lists(
    st.text(st.sampled_from('01x -+.,"etrufals'), min_size=1, max_size=12), min_size=1, max_size=4
)


@settings(max_examples=300, deadline=None)
@given(lines=lines)
def test_arrow_reads_what_is_read_one_by_one(lines: list[str]) -> None:
    builder = CsvSchema.builder().add_string_column("s").add_number_column("n")
    blocks = CsvBlockReader(builder.add_boolean_column("b").build())
    block = "\n".join(line + ",1,true" for line in lines).encode()
    at_once = blocks._columns(block, one_line_each=True)
    if at_once is not None:
        one_by_one = list(blocks._one_by_one(block.decode(), one_line_each=True))
        assert list(zip(*at_once, strict=True)) == [tuple(row) for row in one_by_one]


def test_a_header_is_written_once_into_a_merged_file(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_columns_from(WORDS).set_use_header().build()
    pieces = []
    for number in range(3):
        written(schema, [("w", number)], tmp_path / str(number))
        pieces.append(tmp_path / str(number))
    with (tmp_path / "all").open("wb") as file:
        CsvBulkWriters.for_schema(schema).merge(pieces, file)
    assert (tmp_path / "all").read_text() == "word,n\nw,0\nw,1\nw,2\n"


def test_a_row_of_another_type_names_its_field(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match="'n'"):
        written(WORDS, [("a", "many")], tmp_path / "file")


def test_invalid_schemas_are_rejected_while_building() -> None:
    with pytest.raises(InvalidJobError, match="at least one column"):
        CsvSchema.builder().add_string_column("a").clear_columns().build()
    with pytest.raises(InvalidJobError, match="distinct"):
        CsvSchema.builder().add_string_column("a").add_string_column("a").build()
    with pytest.raises(InvalidJobError, match="number type"):
        CsvSchema.builder().add_number_column("a", Types.STRING())
    assert len(WORDS) == WORDS.size() == 2
