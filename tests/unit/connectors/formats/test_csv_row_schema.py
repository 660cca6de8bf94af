import decimal
from datetime import UTC, date, datetime
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.csv.cells import CsvLayout, split_cells
from penstock.datastream.formats.csv import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from penstock.errors import ConnectorError, InvalidJobError

ORDER = Types.ROW_NAMED(["id", "name", "price"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
Reading = CsvRowDeserializationSchema.Builder
Writing = CsvRowSerializationSchema.Builder


def one(type_info: TypeInformation, cell: str) -> Any:
    row_type = Types.ROW_NAMED(["x", "y"], [type_info, Types.STRING()])
    return Reading(row_type).build().deserialize(f"{cell},end".encode()).x


def test_cells_become_fields_in_order() -> None:
    schema = Reading(ORDER).build()
    assert schema.deserialize(b"1,apple,2.5") == Row(id=1, name="apple", price=2.5)
    assert schema.deserialize(b"1,apple,2.5\r\n") == Row(id=1, name="apple", price=2.5)
    assert schema.deserialize(b' 1,"a ""b"", c", 2.5') == Row(id=1, name='a "b", c', price=2.5)
    assert schema.get_produced_type() == ORDER


def test_empty_lines_are_left_out() -> None:
    assert Reading(ORDER).build().deserialize(b"") is None
    assert Reading(ORDER).build().deserialize(b"\n") is None


@pytest.mark.parametrize(
    ("type_info", "cell", "value"),
    [
        (Types.STRING(), "", ""),
        (Types.BOOLEAN(), " True", True),
        (Types.LONG(), "+7", 7),
        (Types.BIG_DEC(), "1.10", decimal.Decimal("1.10")),
        (Types.FLOAT(), "0.1", 0.10000000149011612),
        (Types.SQL_DATE(), "2026-01-31", date(2026, 1, 31)),
        (
            Types.SQL_TIMESTAMP(),
            "2026-01-31 12:30:00.5",
            datetime(2026, 1, 31, 12, 30, 0, 500000, UTC).replace(tzinfo=None),
        ),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "AQI=", b"\x01\x02"),
        (Types.BASIC_ARRAY(Types.INT()), "1;2;3", [1, 2, 3]),
        (Types.BASIC_ARRAY(Types.INT()), "", []),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), "1;x", Row(a=1, b="x")),
    ],
)
def test_cells_are_read_by_their_types(type_info: TypeInformation, cell: str, value: Any) -> None:
    assert one(type_info, cell) == value


@pytest.mark.parametrize(
    "message", [b"x,apple,2.5", b"2147483648,a,1", b"1,apple", b'1,"apple,2.5', b"1,a,2,3", b"\xff"]
)
def test_lines_of_another_type_are_rejected(message: bytes) -> None:
    with pytest.raises(ConnectorError, match="Failed to deserialize CSV row"):
        Reading(ORDER).build().deserialize(message)


def test_with_ignored_parse_errors_fields_are_none_or_the_line_is_skipped() -> None:
    schema = Reading(ORDER).set_ignore_parse_errors(True).build()
    assert schema.deserialize(b"x,apple,2.5") == Row(id=None, name="apple", price=2.5)
    assert schema.deserialize(b"1,apple") == Row(id=1, name="apple", price=None)
    assert schema.deserialize(b"1,a,2,3") is None
    assert schema.deserialize(b'1,"apple') is None


def test_the_layout_may_be_another() -> None:
    schema = (
        Reading(ORDER)
        .set_field_delimiter("|")
        .set_quote_character("'")
        .set_escape_character("\\")
        .set_null_literal("n/a")
        .set_allow_comments(True)
        .build()
    )
    assert schema.deserialize(b"1|'a|\\'b'|n/a") == Row(id=1, name="a|'b", price=None)
    assert schema.deserialize(b"# 1|2|3") is None
    assert schema.deserialize(b"# first\n1|x|2") == Row(id=1, name="x", price=2.0)


def test_text_is_quoted_where_jackson_does_so() -> None:
    schema = Writing(ORDER).build()
    assert schema.serialize(Row(1, "apple", 1e10)) == b"1,apple,1.0E10\n"
    assert schema.serialize(Row(1, "an apple", 2.0)) == b'1,"an apple",2.0\n'
    assert schema.serialize(Row(1, 'a,"b"', 2.0)) == b'1,"a,""b""",2.0\n'
    assert schema.serialize(Row(1, "a" * 25, 2.0)) == b'1,"' + b"a" * 25 + b'",2.0\n'
    assert schema.serialize(Row(None, "", None)) == b",,\n"


def test_what_is_written_follows_the_layout() -> None:
    schema = (
        Writing(Types.ROW([Types.STRING(), Types.BASIC_ARRAY(Types.INT())]))
        .set_field_delimiter(";")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_escape_character("\\")
        .set_null_literal("n/a")
        .set_line_delimiter("\r\n")
        .build()
    )
    assert schema.serialize(Row("it's;", [1, 2])) == b"'it''s;';'1/2'\r\n"
    assert schema.serialize(Row(None, None)) == b"n/a;n/a\r\n"
    plain = Writing(Types.ROW([Types.STRING()])).disable_quote_character().set_line_delimiter("")
    assert plain.build().serialize(Row("a b")) == b"a b"


def test_an_escape_character_is_doubled_and_so_are_quotes_as_in_pyflink() -> None:
    row = Types.ROW([Types.STRING(), Types.STRING()])
    writing = Writing(row).set_escape_character("*").set_quote_character("'").build()
    reading = Reading(row).set_escape_character("*").set_quote_character("'").build()
    line = writing.serialize(Row("BEGIN", "123'4*"))
    assert line == b"BEGIN,'123''4**'\n"
    assert list(reading.deserialize(line)) == ["BEGIN", "123'4*"]


texts = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\x00"))
orders = st.builds(
    lambda i, n, p: Row(id=i, name=n, price=p),
    st.integers(-(2**31), 2**31 - 1),
    texts.filter(lambda text: len(text.splitlines()) <= 1),
    st.floats(allow_nan=False),
)


@given(orders)
def test_rows_are_read_as_written(row: Row) -> None:
    message = Writing(ORDER).build().serialize(row)
    assert Reading(ORDER).build().deserialize(message) == row


@pytest.mark.parametrize(
    "mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]
)
def test_a_line_ends_at_line_feeds_and_carriage_returns_only(mark: str) -> None:
    for layout in (CsvLayout(), CsvLayout(comments=True), CsvLayout(quote=None)):
        assert split_cells(layout, f"a{mark}b,c\nd") == [f"a{mark}b", "c"]
    quoted = f'"a{mark}b","c"'
    assert split_cells(CsvLayout(), quoted) == [f"a{mark}b", "c"]
    assert split_cells(CsvLayout(comments=True), f"#no{mark}#\n{quoted}") == [f"a{mark}b", "c"]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_any_end_of_a_line_ends_it(end: str) -> None:
    assert split_cells(CsvLayout(), f"a,b{end}c") == ["a", "b"]
    assert split_cells(CsvLayout(), f'"a",b{end}c') == ["a", "b"]
    with_comments = CsvLayout(comments=True)
    assert split_cells(with_comments, f"# one{end}# two{end}a,b{end}# three") == ["a", "b"]
    assert split_cells(with_comments, f'"a{end}# no comment",b') == [f"a{end}# no comment", "b"]
    assert split_cells(with_comments, "# nothing else") == []


def test_a_quoted_cell_may_be_as_long_as_one_without_quotes() -> None:
    long = "x" * 200_000
    assert split_cells(CsvLayout(), f'"{long}",1') == [long, "1"]


def test_rows_of_another_length_are_rejected() -> None:
    with pytest.raises(ConnectorError, match="Row length mismatch"):
        Writing(ORDER).build().serialize(Row(1, "a"))


def test_invalid_settings_are_rejected_by_the_builder() -> None:
    with pytest.raises(TypeError, match="must not be None"):
        Reading(None)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="Row type information expected"):
        Writing(Types.STRING())
    with pytest.raises(InvalidJobError, match="one character"):
        Reading(ORDER).set_field_delimiter("||")
    with pytest.raises(InvalidJobError, match="new line delimiter"):
        Writing(ORDER).set_line_delimiter(";")
    with pytest.raises(InvalidJobError, match="Unsupported type information"):
        Reading(Types.ROW([Types.MAP(Types.STRING(), Types.INT())])).build()


def test_schemas_can_be_shipped_to_tasks() -> None:
    twin = cloudpickle.loads(cloudpickle.dumps(Reading(ORDER).build()))
    assert twin.deserialize(b"1,a,2").id == 1
    writer = cloudpickle.loads(cloudpickle.dumps(Writing(ORDER).build()))
    assert writer.serialize(Row(1, "a", 2.0)) == b"1,a,2.0\n"
