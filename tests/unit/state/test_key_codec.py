import datetime
import os
import subprocess
import sys
from collections import namedtuple
from decimal import Decimal
from enum import IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.common.time import Instant
from penstock.errors import TypeMismatchError, UnstableKeyError
from penstock.state.keys import KeyCodec

NAIVE = datetime.datetime(2024, 2, 29, 12, 30, 15, 250)  # noqa: DTZ001
OFFSET = NAIVE.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-5, minutes=-30)))

GOLDEN: list[tuple[Any, str]] = [
    (None, "01"),
    (False, "02"),
    (True, "03"),
    (0, "0e"),
    (1, "0f01"),
    (-1, "0dfe"),
    (255, "0fff"),
    (256, "100100"),
    (-255, "0d00"),
    (-256, "0cfeff"),
    (2**63 - 1, "167fffffffffffffff"),
    (-(2**63), "067fffffffffffffff"),
    (2**64, "17" + "00000009" + "010000000000000000"),
    (-(2**64), "05" + "fffffff6" + "feffffffffffffffff"),
    (1.0, "20bff0000000000000"),
    (0.0, "208000000000000000"),
    (-0.0, "207fffffffffffffff"),
    (-1.5, "204007ffffffffffff"),
    (float("nan"), "20fff8000000000000"),
    (float("inf"), "20fff0000000000000"),
    ("", "3000"),
    ("a", "306100"),
    ("ä\0b", "30c3a400ff6200"),
    ("\ud800", "30eda08000"),
    (b"", "3100"),
    (b"a\0", "316100ff00"),
    (Decimal("1.50"), "40312e353000"),
    (datetime.date(2024, 2, 29), "50000b4681"),
    (NAIVE, "5200e2d2836b0a64ba"),
    (OFFSET, "5340e2d28807366aba3ffffffb63d3fa00"),
    (Instant(1, 2), "5440000000000000014000000000000002"),
    (datetime.time(1, 2, 3, 4), "5100000000dde878c4"),
    ((), "6000"),
    ((1, "a"), "600f0130610000"),
    (((),), "60600000"),
    ([None, True], "61010300"),
    ({"b": 1, "a": 2}, "62306100" + "0f02" + "306200" + "0f01" + "00"),
    (Row(1, "a"), "63000f0130610000"),
    (Row(x=1), "640030780" + "00f0100"),
    (Row.of_kind(RowKind.DELETE, 1), "63030f0100"),
]


@pytest.mark.parametrize(("key", "expected"), GOLDEN, ids=lambda case: repr(case)[:20])
def test_key_bytes_never_change(key: Any, expected: str) -> None:
    assert KeyCodec().encode(key).hex() == expected


def test_equal_numbers_of_three_classes_are_three_keys() -> None:
    assert len({KeyCodec().encode(key) for key in (1, 1.0, True, Decimal(1))}) == 4


def test_zero_has_two_floats_and_nan_one() -> None:
    encode = KeyCodec().encode
    assert encode(0.0) != encode(-0.0)
    assert encode(float("nan")) == encode(-float("nan"))


ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.builds(Instant, st.integers(-(2**40), 2**40), st.integers(0, 10**9))
)
KEYS = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.lists(inner, max_size=3).map(lambda items: Row(*items))
        | st.lists(inner, min_size=2, max_size=2).map(lambda items: Row(a=items[0], b=items[1]))
    ),
    max_leaves=6,
)


@given(KEYS)
def test_keys_round_trip(key: Any) -> None:
    codec = KeyCodec()
    back = codec.decode(codec.encode(key))
    assert repr(back) == repr(key) or back == key
    assert type(back) is type(key)


@given(KEYS, KEYS)
def test_no_key_is_the_beginning_of_another(first: Any, second: Any) -> None:
    one, other = KeyCodec().encode(first), KeyCodec().encode(second)
    assert one == other or not other.startswith(one)


@pytest.mark.parametrize(
    "values",
    [
        st.lists(st.integers(-(2**80), 2**80)),
        st.lists(st.floats(allow_nan=False).filter(bool)),
        st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        st.lists(st.binary()),
        st.lists(st.datetimes()),
        st.lists(st.tuples(st.integers(), st.text(st.characters(exclude_categories=["Cs"])))),
    ],
    ids=["int", "float", "str", "bytes", "datetime", "tuple"],
)
def test_bytes_of_one_class_sort_like_its_keys(values: st.SearchStrategy[list[Any]]) -> None:
    @given(values)
    def check(keys: list[Any]) -> None:
        assert sorted(keys) == sorted(keys, key=KeyCodec().encode)

    check()


def test_a_fixed_offset_is_part_of_the_key_and_round_trips() -> None:
    codec = KeyCodec()
    back = codec.decode(codec.encode(OFFSET))
    assert (back, back.utcoffset()) == (OFFSET, OFFSET.utcoffset())
    assert codec.encode(OFFSET) != codec.encode(OFFSET.astimezone(datetime.UTC))


Point = namedtuple("Point", "x y")


class Color(IntEnum):
    RED = 1


class Unstable:
    pass


@pytest.mark.parametrize(
    "key",
    [
        Unstable(),
        {1, 2},
        Point(1, 2),
        Color.RED,
        np.int64(1),
        np.float64(1.0),
        bytearray(b"x"),
        NAIVE.replace(tzinfo=ZoneInfo("Europe/Berlin")),
        (1, [Unstable()]),
    ],
    ids=lambda key: type(key).__name__,
)
def test_a_key_of_any_other_class_is_rejected(key: Any) -> None:
    with pytest.raises(UnstableKeyError, match="step 'count': a key must be"):
        KeyCodec(step="count").encode(key)


def test_the_refusal_of_a_numpy_scalar_says_what_to_do() -> None:
    with pytest.raises(UnstableKeyError, match=r"of class numpy\.int64; .*int\(x\)"):
        KeyCodec().encode(np.int64(1))


@pytest.mark.parametrize(
    ("type_info", "given", "same_as"),
    [
        (Types.DOUBLE(), 1, 1.0),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.LONG(), np.int64(5), 5),
        (Types.STRING(), np.str_("a"), "a"),
        (Types.TUPLE([Types.LONG(), Types.STRING()]), Point(1, "a"), (1, "a")),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Row(1), Row(a=1)),
        (Types.LONG(), None, None),
        (Types.PICKLED_BYTE_ARRAY(), 1.0, 1.0),
    ],
    ids=repr,
)
def test_a_typed_key_takes_the_form_of_its_type(
    type_info: TypeInformation, given: Any, same_as: Any
) -> None:
    assert KeyCodec(type_info).encode(given) == KeyCodec().encode(same_as)


def test_a_typed_key_must_fit() -> None:
    with pytest.raises(TypeMismatchError):
        KeyCodec(Types.LONG()).encode("a")
    with pytest.raises(TypeMismatchError):
        KeyCodec(Types.INT()).encode(2**31)
    with pytest.raises(TypeMismatchError):
        KeyCodec(Types.LONG()).encode(True)


SCRIPT = """
from penstock.state.keys import KeyCodec
keys = [{"b": 1, "a": {"d": 2, "c": 3}}, ("x", 1.5, None), "text"]
print([KeyCodec().encode(key).hex() for key in keys])
"""


def test_key_bytes_do_not_depend_on_the_hash_seed(capsys: pytest.CaptureFixture[str]) -> None:
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    exec(SCRIPT)
    assert there.stdout == capsys.readouterr().out


@pytest.mark.parametrize("data", [b"\xfe", b"\x0e\x00", b"\x30a"])
def test_bytes_that_are_no_key_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"byte|subsection not found"):
        KeyCodec().decode(data)
