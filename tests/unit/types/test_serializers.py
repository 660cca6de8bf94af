import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.common.time import Instant
from penstock.errors import TypeMismatchError
from penstock.types.serializers import edge_serializer_for, serializer_for
from penstock.types.signature import is_pickled

ROW = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999)  # noqa: DTZ001

ROUND_TRIPS: list[tuple[TypeInformation, Any]] = [
    (Types.STRING(), "grüße\0"),
    (Types.BYTE(), -128),
    (Types.SHORT(), 32_767),
    (Types.INT(), -(2**31)),
    (Types.LONG(), 2**63 - 1),
    (Types.LONG(), -(2**63)),
    (Types.BOOLEAN(), True),
    (Types.DOUBLE(), -0.1),
    (Types.FLOAT(), 0.5),
    (Types.CHAR(), "x"),
    (Types.BIG_INT(), -(2**200)),
    (Types.BIG_INT(), 0),
    (Types.BIG_DEC(), Decimal("12345678901234567890.10")),
    (Types.INSTANT(), Instant(-5, 7)),
    (Types.SQL_DATE(), datetime.date(1, 1, 1)),
    (Types.SQL_TIME(), datetime.time(23, 59, 59, 1)),
    (Types.SQL_TIMESTAMP(), MOMENT),
    (Types.TUPLE([Types.STRING(), Types.BIG_INT()]), ("a", 2**100)),
    (Types.TUPLE([]), ()),
    (ROW, Row(name="a", n=None)),
    (ROW, Row.of_kind(RowKind.DELETE, name="a", n=1)),
    (Types.LIST(ROW), [Row(name="a", n=1), Row(name=None, n=2)]),
    (Types.LIST(Types.PICKLED_BYTE_ARRAY()), [{1}, None, "x"]),
    (Types.MAP(Types.STRING(), Types.LONG()), {"b": 1, "a": None}),
    (Types.MAP(Types.LONG(), Types.BIG_INT()), {1: 2**100, 2: None}),
    (Types.MAP(Types.TUPLE([Types.LONG()]), Types.LIST(Types.LONG())), {(1,): [2]}),
    (Types.MAP(Types.BOOLEAN(), Types.LONG()), {True: 1}),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\0\xff"),
    (Types.PRIMITIVE_ARRAY(Types.LONG()), [1, 2]),
    (Types.BASIC_ARRAY(Types.STRING()), ["a", None]),
    (Types.OBJECT_ARRAY(Types.TUPLE([Types.DOUBLE()])), [(1.0,), None]),
    (Types.PICKLED_BYTE_ARRAY(), {"any": {1, 2}}),
]


@pytest.mark.parametrize(("type_info", "value"), ROUND_TRIPS, ids=repr)
def test_values_round_trip(type_info: TypeInformation, value: Any) -> None:
    serializer = serializer_for(type_info)
    back = serializer.decode(serializer.encode(value))
    assert back == value
    assert type(back) is type(value)


MISFITS: list[Any] = [
    (Types.LONG(), "a", ""),
    (Types.LONG(), True, ""),
    (Types.LONG(), 1.0, ""),
    (Types.LONG(), None, ""),
    (Types.LONG(), 2**63, ""),
    (Types.INT(), 2**31, ""),
    (Types.SHORT(), -(2**15) - 1, ""),
    (Types.BYTE(), 128, ""),
    (Types.STRING(), b"a", ""),
    (Types.STRING(), "\ud800", ""),
    (Types.CHAR(), "ab", ""),
    (Types.BOOLEAN(), 1, ""),
    (Types.DOUBLE(), "1", ""),
    (Types.DOUBLE(), 10**400, ""),
    (Types.FLOAT(), 1e300, ""),
    (Types.BIG_DEC(), 1.5, ""),
    (Types.SQL_DATE(), MOMENT, ""),
    (Types.SQL_TIMESTAMP(), MOMENT.replace(tzinfo=datetime.UTC), ""),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, 2), "f1"),
    (Types.TUPLE([Types.LONG()]), (None,), "f0"),
    (Types.TUPLE([Types.LONG()]), (1, 2), ""),
    (Types.TUPLE([Types.LONG()]), [1], ""),
    (ROW, Row(name="a", n="b"), "n"),
    (ROW, Row(name="a", other=1), ""),
    (ROW, Row("a"), ""),
    (Types.TUPLE([ROW]), (Row("a", 2**70),), "f0.n"),
    (Types.LIST(Types.LONG()), [1, "x"], "[1]"),
    (Types.LIST(Types.LONG()), [None], "[0]"),
    (Types.MAP(Types.STRING(), Types.LONG()), {"a": "b"}, "['a']"),
    pytest.param(Types.PICKLED_BYTE_ARRAY(), (value for value in "a"), "", id="a generator"),
]


@pytest.mark.parametrize(("type_info", "value", "path"), MISFITS, ids=repr)
def test_a_value_of_another_type_is_rejected_by_field(
    type_info: TypeInformation, value: Any, path: str
) -> None:
    with pytest.raises(TypeMismatchError) as caught:
        serializer_for(type_info).encode(value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("type_info", "value", "canonical"),
    [
        (Types.DOUBLE(), 1, 1.0),
        (Types.FLOAT(), 1, 1.0),
        (Types.LONG(), np.int32(7), 7),
        (Types.DOUBLE(), np.float64(0.5), 0.5),
        (ROW, ("a", 1), Row(name="a", n=1)),
        (ROW, Row(n=1, name="a"), Row(name="a", n=1)),
        (Types.LIST(Types.LONG()), (1, 2), [1, 2]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"x"), b"x"),
    ],
    ids=repr,
)
def test_a_value_is_coerced_to_its_type(
    type_info: TypeInformation, value: Any, canonical: Any
) -> None:
    serializer = serializer_for(type_info)
    coerced = serializer.coerce(value)
    assert coerced == canonical
    assert type(coerced) is type(canonical)
    assert serializer.decode(serializer.encode(value)) == coerced


def test_a_number_that_can_be_changed_in_place_is_none() -> None:
    for type_info in (Types.LONG(), Types.DOUBLE()):
        with pytest.raises(TypeMismatchError):
            serializer_for(type_info).encode(np.zeros((), np.int64))


def test_a_fitted_row_carries_the_declared_names() -> None:
    assert serializer_for(ROW).coerce(Row("a", 1)).as_dict() == {"name": "a", "n": 1}


def test_typed_values_are_compact_and_not_pickled() -> None:
    assert serializer_for(Types.LONG()).encode(5) == b"\x05"
    assert serializer_for(Types.TUPLE([Types.STRING(), Types.LONG()])).encode(("a", 1)) == (
        b"\x92\xa1a\x01"
    )


@pytest.mark.parametrize(
    "type_info",
    {type_info: 0 for type_info, _ in ROUND_TRIPS if not is_pickled(type_info)},
    ids=repr,
)
def test_pickled_bytes_are_no_value_of_a_declared_type(
    type_info: TypeInformation, tmp_path: Path
) -> None:
    class Planted:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "trace",)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for value in (Planted(), [Planted()], {"a": Planted()}):
            with pytest.raises(msgspec.DecodeError):
                serializer_for(type_info).decode(pickle.dumps(value, protocol))
    assert not (tmp_path / "trace").exists()


def test_untyped_values_are_pickled_in_a_fixed_protocol() -> None:
    data = serializer_for(None).encode(("a", 1))
    assert data == pickle.dumps(("a", 1), 5)


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.floats())))
def test_lists_of_tuples_round_trip(values: list[tuple[str, float]]) -> None:
    serializer = serializer_for(Types.LIST(Types.TUPLE([Types.STRING(), Types.DOUBLE()])))
    assert repr(serializer.decode(serializer.encode(values))) == repr(values)


@pytest.mark.parametrize("nest", [lambda v: v, lambda v: (v,), lambda v: [v]], ids=["", "()", "[]"])
def test_a_float_has_all_its_bits_in_state_and_half_of_them_at_an_edge(
    nest: Callable[[Any], Any],
) -> None:
    declared = {float: Types.FLOAT(), tuple: Types.TUPLE([Types.FLOAT()])}
    type_info = declared.get(type(nest(0.1)), Types.LIST(Types.FLOAT()))
    held, sent = serializer_for(type_info), edge_serializer_for(type_info)
    assert held.decode(held.encode(nest(0.1))) == nest(0.1)
    assert sent.decode(sent.encode(nest(0.1))) == nest(0.10000000149011612)
    with pytest.raises(TypeMismatchError):
        held.encode(nest(1e300))
