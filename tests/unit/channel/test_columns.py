from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.channel.columns import RecordLayout, decoder_for, encoder_for
from penstock.common import Row, RowKind, Types
from penstock.common.typeinfo import TypeInformation
from penstock.errors import TypeMismatchError, UnexpectedPickleError


def through(records: list[Any], type_info: TypeInformation | None = None) -> list[Any]:
    return decoder_for(type_info)(*encoder_for(type_info)(records))


def layout_of(records: list[Any], type_info: TypeInformation | None = None) -> RecordLayout:
    return encoder_for(type_info)(records)[0]


def sized(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
BASIC: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "string": (Types.STRING(), TEXT),
    "boolean": (Types.BOOLEAN(), st.booleans()),
    "byte": (Types.BYTE(), sized(8)),
    "short": (Types.SHORT(), sized(16)),
    "int": (Types.INT(), sized(32)),
    "long": (Types.LONG(), sized(64)),
    "float": (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    "double": (Types.DOUBLE(), st.floats(allow_nan=False)),
    "char": (Types.CHAR(), st.characters(exclude_categories=["Cs"])),
    "big int": (Types.BIG_INT(), st.integers()),
    "big dec": (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    "date": (Types.SQL_DATE(), st.dates()),
    "time": (Types.SQL_TIME(), st.times()),
    "timestamp": (Types.SQL_TIMESTAMP(), st.datetimes()),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
}
_DOUBLE, _TEXT, _LONG = BASIC["double"], BASIC["string"], BASIC["long"]
NESTED: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "tuple": (Types.TUPLE([_TEXT[0], _LONG[0]]), st.tuples(_TEXT[1], _LONG[1])),
    "row": (
        Types.ROW_NAMED(["a", "b"], [_TEXT[0], _DOUBLE[0]]),
        st.builds(lambda a, b: Row(a=a, b=b), st.none() | _TEXT[1], st.none() | _DOUBLE[1]),
    ),
    "tuple in tuple": (
        Types.TUPLE([Types.TUPLE([_LONG[0]]), _TEXT[0]]),
        st.tuples(st.tuples(_LONG[1]), _TEXT[1]),
    ),
    "list": (Types.LIST(_TEXT[0]), st.lists(_TEXT[1])),
    "map": (Types.MAP(_TEXT[0], _LONG[0]), st.dictionaries(_TEXT[1], _LONG[1])),
    "array": (Types.BASIC_ARRAY(_TEXT[0]), st.lists(st.none() | _TEXT[1])),
}
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", [*BASIC, *NESTED])
def test_typed_records_come_back_as_they_were(kind: str) -> None:
    type_info, values = {**BASIC, **NESTED}[kind]

    @settings(max_examples=10, deadline=None)
    @given(st.lists(values, max_size=5))
    def check(records: list[Any]) -> None:
        came = through(records, type_info)
        assert came == records
        assert list(map(type, came)) == list(map(type, records))

    check()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(ANYTHING, max_size=4)
    | st.lists(st.integers(), max_size=4)
    | st.lists(st.text(), max_size=4)
    | st.lists(st.tuples(st.integers(), st.text()), max_size=4)
)
def test_untyped_records_come_back_as_they_were(records: list[Any]) -> None:
    assert repr(through(records)) == repr(records)


@pytest.mark.parametrize(
    ("records", "layout"),
    [
        (["a", "b"], RecordLayout.SCALAR),
        ([1, 2], RecordLayout.SCALAR),
        ([("a", 1.5), ("b", 2.5)], RecordLayout.TUPLE),
        ([1, True], RecordLayout.PICKLE),
        ([1, None], RecordLayout.PICKLE),
        ([2**63], RecordLayout.PICKLE),
        (["\ud800"], RecordLayout.PICKLE),
        ([("a", 1), ("b", 2**70)], RecordLayout.PICKLE),
        ([(), ()], RecordLayout.PICKLE),
        ([[1], [2]], RecordLayout.PICKLE),
    ],
)
def test_untyped_records_are_columns_where_nothing_is_lost(
    records: list[Any], layout: RecordLayout
) -> None:
    assert layout_of(records) is layout
    assert through(records) == records


def test_nan_and_signed_zero_survive() -> None:
    nan, zero = through([math.nan, -0.0], Types.DOUBLE())
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


NAMED = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


def test_a_row_is_read_by_its_names_where_it_has_some() -> None:
    rows = [Row(age=36, name="Ada"), Row("Bo", 7), ("Cy", 12)]
    came = through(rows, NAMED)
    assert came == [Row(name="Ada", age=36), Row(name="Bo", age=7), Row(name="Cy", age=12)]


def test_a_row_keeps_its_kind() -> None:
    (gone,) = through([Row.of_kind(RowKind.DELETE, "Di", 1)], NAMED)
    assert (gone.get_row_kind(), gone.age) == (RowKind.DELETE, 1)


def test_numbers_take_the_form_of_their_type() -> None:
    assert repr(through([1, 2**60], Types.DOUBLE())) == "[1.0, 1.152921504606847e+18]"
    assert through([math.inf, 0.1], Types.FLOAT()) == [math.inf, 0.10000000149011612]


PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("record", "type_info", "text"),
    [
        (("a", "x"), PAIR, "field 'f1' does not match its declared type Integer; got 'x'"),
        (
            ("a", 2**40),
            PAIR,
            "field 'f1' does not match its declared type Integer; got 1099511627776",
        ),
        (("a",), PAIR, "the record does not match"),
        (["a", 1], PAIR, "the record does not match"),
        (Row(name="a", years=1), NAMED, "the record does not match"),
        (1, Types.STRING(), "the record does not match its declared type String; got 1"),
        (True, Types.INT(), "got True"),
        (1e300, Types.FLOAT(), "the record does not match its declared type Float; got 1e+300"),
        ("\ud800", Types.STRING(), "the record does not match its declared type String"),
        (None, Types.LONG(), "got None"),
    ],
)
def test_a_record_that_does_not_fit_its_type_is_refused(
    record: Any, type_info: TypeInformation, text: str
) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        through([record], type_info)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "type_info",
    [Types.LONG(), Types.STRING(), Types.TUPLE([Types.LONG()]), Types.LIST(Types.STRING())],
    ids=repr,
)
def test_pickled_records_of_a_declared_type_are_not_loaded(
    type_info: TypeInformation, tmp_path: Path
) -> None:
    class Planted:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "trace",)

    columns = [pa.array([pickle.dumps(Planted())], pa.binary())]
    with pytest.raises(UnexpectedPickleError, match="declared type"):
        decoder_for(type_info)(RecordLayout.PICKLE, columns)
    assert not (tmp_path / "trace").exists()
    decoder_for(None)(RecordLayout.PICKLE, columns)
    assert (tmp_path / "trace").exists()
