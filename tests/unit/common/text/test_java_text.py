from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.common import Instant, Row, RowKind, TypeInformation, Types
from penstock.common.text.java_numbers import double_text, float_text
from penstock.common.text.java_text import format_value, java_string
from penstock.errors import TypeMismatchError

DAY = date(2024, 1, 31)
CLOCK = time(1, 2, 3, 456000)
MOMENT = datetime(2024, 1, 31, 1, 2, 3, 456000)  # noqa: DTZ001 SQL timestamps have no zone
PAIR = Types.TUPLE([Types.INT(), Types.STRING()])

# Printed by PyFlink 2.3 in thread mode.
SEEN: list[tuple[TypeInformation | None, Any, str]] = [
    (Types.STRING(), "x", "x"),
    (Types.STRING(), "", ""),
    (Types.INT(), -5, "-5"),
    (Types.LONG(), 2**40, "1099511627776"),
    (Types.BYTE(), -128, "-128"),
    (Types.BOOLEAN(), True, "true"),
    (Types.BOOLEAN(), False, "false"),
    (Types.FLOAT(), 0.1, "0.1"),
    (Types.FLOAT(), 1e10, "1.0E10"),
    (Types.FLOAT(), 1e-5, "1.0E-5"),
    (Types.FLOAT(), 123456.789, "123456.79"),
    (Types.FLOAT(), float("nan"), "NaN"),
    (Types.FLOAT(), float("-inf"), "-Infinity"),
    (Types.DOUBLE(), 1.0, "1.0"),
    (Types.DOUBLE(), 1e6, "1000000.0"),
    (Types.DOUBLE(), 1e7, "1.0E7"),
    (Types.DOUBLE(), 1e-3, "0.001"),
    (Types.DOUBLE(), -0.0, "-0.0"),
    (Types.DOUBLE(), 1 / 3, "0.3333333333333333"),
    (Types.DOUBLE(), float("inf"), "Infinity"),
    (Types.BIG_DEC(), Decimal("1.10"), "1.10"),
    (Types.BIG_DEC(), Decimal("1E+3"), "1E+3"),
    (Types.BIG_DEC(), Decimal("-0.0000001"), "-1E-7"),
    (Types.SQL_DATE(), DAY, "2024-01-31"),
    (Types.SQL_TIME(), CLOCK, "01:02:03"),
    (Types.SQL_TIMESTAMP(), MOMENT, "2024-01-31 01:02:03.456"),
    (
        Types.SQL_TIMESTAMP(),
        MOMENT.replace(microsecond=456789),
        "2024-01-31 01:02:03.456789",
    ),
    (Types.SQL_TIMESTAMP(), MOMENT.min, "0001-01-01 00:00:00.0"),
    (Types.SQL_TIMESTAMP(), MOMENT.replace(microsecond=0), "2024-01-31 01:02:03.0"),
    (Types.INSTANT(), Instant.of_epoch_milli(1500), "1970-01-01T00:00:01.500Z"),
    (Types.INSTANT(), Instant.of_epoch_milli(0), "1970-01-01T00:00:00Z"),
    (
        Types.TUPLE([Types.STRING(), Types.INT(), Types.BOOLEAN(), Types.DOUBLE()]),
        ("a", 1, True, 1e10),
        "(a,1,true,1.0E10)",
    ),
    (Types.TUPLE([Types.STRING(), Types.INT()]), (None, None), "(null,null)"),
    (
        Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.FLOAT(), Types.DOUBLE()]),
        Row("a", True, 0.1, 1e10),
        "+I[a,True,0.1,10000000000.0]",
    ),
    (Types.ROW([Types.STRING(), Types.INT()]), Row(None, None), "+I[None,None]"),
    (Types.ROW([Types.STRING(), Types.INT()]), ("a", 1), "+I[a,1]"),
    (Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]), Row(a="a", b=1), "+I[a,1]"),
    (Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.INT()]), Row(a=1, b="x"), "+I[x,1]"),
    (Types.LIST(Types.INT()), [1, 2, 3], "[1, 2, 3]"),
    (Types.ROW([Types.INT()]), Row.of_kind(RowKind.DELETE, 1), "-D[1]"),
    (
        Types.ROW([Types.PRIMITIVE_ARRAY(Types.INT()), Types.PRIMITIVE_ARRAY(Types.BYTE())]),
        Row([1, 2], b"ab"),
        "+I[[1, 2],b'ab']",
    ),
    (
        Types.ROW([Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT()]),
        Row(DAY, CLOCK, MOMENT, Instant.of_epoch_milli(1500)),
        "+I[2024-01-31,01:02:03.456000,2024-01-31 01:02:03.456000,Instant<1, 500000000>]",
    ),
    (Types.ROW([Types.INT(), Types.PICKLED_BYTE_ARRAY()]), Row(1, ("a", 2)), "+I[1,('a', 2)]"),
    (Types.TUPLE([Types.INT()]), (1,), "(1)"),
    (PAIR, [1, "a"], "(1,a)"),
    (
        Types.TUPLE(
            [
                Types.BASIC_ARRAY(Types.STRING()),
                Types.OBJECT_ARRAY(PAIR),
                Types.PRIMITIVE_ARRAY(Types.BYTE()),
            ]
        ),
        (["a", "b"], [(1, "x")], b"a\xff"),
        "([a, b],[(1,x)],[97, -1])",
    ),
    (
        Types.TUPLE(
            [
                Types.ROW([Types.DOUBLE(), Types.MAP(Types.STRING(), Types.BOOLEAN())]),
                Types.MAP(Types.STRING(), Types.DOUBLE()),
            ]
        ),
        (Row(1e10, {"a": True}), {"k": 1e-9}),
        "(+I[1.0E10, {a=true}],{k=1.0E-9})",
    ),
    (Types.LIST(Types.FLOAT()), [1.0, 0.1, 1e10], "[1.0, 0.1, 1.0E10]"),
    (Types.LIST(Types.SQL_DATE()), [DAY], "[2024-01-31]"),
    (Types.LIST(Types.INT()), [], "[]"),
    (Types.PICKLED_BYTE_ARRAY(), "s", "s"),
    (Types.PICKLED_BYTE_ARRAY(), ("a", 1), "('a', 1)"),
    (None, True, "True"),
    (None, None, "None"),
    (None, 1e10, "10000000000.0"),
    (None, (1, ("b", [1, None])), "(1, ('b', [1, None]))"),
    (None, {"a": 1}, "{'a': 1}"),
    (None, Decimal("1.10"), "1.10"),
    (None, MOMENT, "2024-01-31 01:02:03.456000"),
    (None, Row("a", Row(1, 2), None), "<Row('a', <Row(1, 2)>, None)>"),
    (None, Row(a="x", b=1), "Row(a='x', b=1)"),
    (Types.LIST(Types.STRING()), ["a", None], "[a, null]"),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": 1, "b": None}, "{a=1, b=null}"),
    (Types.MAP(Types.STRING(), Types.INT()), {}, "{}"),
    (Types.MAP(Types.STRING(), Types.LIST(Types.INT())), {"a": [1, 2]}, "{a=[1, 2]}"),
    (Types.TUPLE([Types.INT(), Types.LIST(Types.STRING())]), (1, ["a", "b"]), "(1,[a, b])"),
    (
        Types.ROW([Types.INT(), Types.MAP(Types.STRING(), Types.DOUBLE())]),
        Row(1, {"a": 1.0}),
        "+I[1,{'a': 1.0}]",
    ),
    (
        Types.ROW([Types.INT(), Types.ROW([Types.STRING(), Types.BOOLEAN()])]),
        Row(1, Row("a", True)),
        "+I[1,<Row('a', True)>]",
    ),
    (
        Types.ROW([Types.INT(), Types.TUPLE([Types.STRING(), Types.BOOLEAN()])]),
        Row(1, ("a", True)),
        "+I[1,('a', True)]",
    ),
    (
        Types.TUPLE([Types.INT(), Types.ROW_NAMED(["x", "y"], [Types.STRING(), Types.BOOLEAN()])]),
        (1, Row("a", True)),
        "(1,+I[a, true])",
    ),
    (
        Types.TUPLE([Types.INT(), Types.TUPLE([Types.STRING(), Types.FLOAT()])]),
        (1, ("a", 0.1)),
        "(1,(a,0.1))",
    ),
    (Types.TUPLE([Types.INT(), Types.PRIMITIVE_ARRAY(Types.INT())]), (1, [1, 2]), "(1,[1, 2])"),
    (
        Types.TUPLE(
            [
                Types.SQL_DATE(),
                Types.SQL_TIME(),
                Types.SQL_TIMESTAMP(),
                Types.BIG_DEC(),
                Types.BIG_INT(),
                Types.INSTANT(),
            ]
        ),
        (DAY, CLOCK, MOMENT, Decimal("1.10"), 10**20, Instant.of_epoch_milli(1500)),
        "(2024-01-31,01:02:03,2024-01-31 01:02:03.456,1.10,1"
        + "0" * 20
        + ",1970-01-01T00:00:01.500Z)",
    ),
]


@pytest.mark.parametrize(("type_info", "value", "text"), SEEN)
def test_values_print_as_pyflink_prints_them(
    type_info: TypeInformation | None, value: Any, text: str
) -> None:
    assert format_value(value, type_info) == text


# Failures, addresses or nothing at all in PyFlink; ours by the same rules.
OURS: list[tuple[TypeInformation, Any, str]] = [
    (Types.CHAR(), "c", "c"),
    (Types.BIG_INT(), 10**30, "1" + "0" * 30),
    (Types.STRING(), None, "null"),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), [1.0, 1e10], "[1.0, 1.0E10]"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"a\xff", "[97, -1]"),
    (Types.BASIC_ARRAY(Types.STRING()), ["a", None], "[a, null]"),
    (Types.OBJECT_ARRAY(PAIR), [(1, "a")], "[(1,a)]"),
    (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()]), {"b": 2, "a": 1}, "+I[1,2]"),
    (Types.DOUBLE(), 3, "3.0"),
    (Types.LIST(PAIR), [(1, "a"), (2, "b")], "[(1,a), (2,b)]"),
    (Types.TUPLE([Types.PICKLED_BYTE_ARRAY()]), (("a", None),), "(('a', None))"),
    (Types.PICKLED_BYTE_ARRAY(), b"x", "b'x'"),
]


@pytest.mark.parametrize(("type_info", "value", "text"), OURS)
def test_values_pyflink_cannot_print_follow_the_same_rules(
    type_info: TypeInformation, value: Any, text: str
) -> None:
    assert format_value(value, type_info) == text


def test_text_is_no_number() -> None:
    with pytest.raises(TypeMismatchError, match="Double; got '1'"):
        format_value("1", Types.DOUBLE())


def test_a_row_is_formatted_as_in_java_unless_it_is_printed_itself() -> None:
    type_info = Types.ROW([Types.STRING(), Types.BOOLEAN(), Types.DOUBLE()])
    assert java_string(Row("a", True, None), type_info) == "+I[a, true, null]"


def test_a_timestamp_with_a_zone_prints_in_local_time() -> None:
    aware = MOMENT.astimezone(timezone(timedelta(hours=5)))
    assert format_value(aware, Types.SQL_TIMESTAMP()) == "2024-01-31 01:02:03.456"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (0.00123, "0.00123"),
        (1e-4, "1.0E-4"),
        (-2.5, "-2.5"),
        (100.0, "100.0"),
        (2e23, "2.0E23"),
    ],
)
def test_doubles_have_the_shortest_text_of_at_least_two_digits(number: float, text: str) -> None:
    assert double_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1 / 3, "0.33333334"),
        (1.4e-45, "1.4E-45"),
        (1e39, "Infinity"),
        (3.4028235e38, "3.4028235E38"),
    ],
)
def test_floats_round_to_32_bits(number: float, text: str) -> None:
    assert float_text(number) == text
