from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.types.compatibility import AsIs, Incompatible, Migration, compatibility
from penstock.types.serializers import serializer_for
from tests.unit.types.typed_values import TYPES, values_of

OLD = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])

CHANGES: list[tuple[TypeInformation, TypeInformation, Any, Any]] = [
    (Types.BYTE(), Types.SHORT(), -3, -3),
    (Types.SHORT(), Types.LONG(), 3, 3),
    (Types.INT(), Types.LONG(), 2**31 - 1, 2**31 - 1),
    (Types.LONG(), Types.BIG_INT(), -(2**63), -(2**63)),
    (Types.FLOAT(), Types.DOUBLE(), 0.5, 0.5),
    (Types.INT(), Types.DOUBLE(), 7, 7.0),
    (
        OLD,
        Types.ROW_NAMED(["n", "more", "name"], [Types.DOUBLE(), Types.LONG(), Types.STRING()]),
        Row(name="a", n=1),
        Row(n=1.0, more=None, name="a"),
    ),
    (OLD, Types.ROW_NAMED(["n"], [Types.INT()]), Row(name="a", n=None), Row(n=None)),
    (
        OLD,
        Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()]),
        Row.of_kind(RowKind.DELETE, name="a", n=1),
        Row.of_kind(RowKind.DELETE, name="a", n=1),
    ),
    (
        Types.ROW_NAMED(["inner"], [OLD]),
        Types.ROW_NAMED(["inner"], [Types.ROW_NAMED(["n"], [Types.LONG()])]),
        Row(inner=Row(name="a", n=1)),
        Row(inner=Row(n=1)),
    ),
    (Types.LIST(Types.INT()), Types.LIST(Types.BIG_INT()), [1, 2], [1, 2]),
    (Types.OBJECT_ARRAY(Types.INT()), Types.OBJECT_ARRAY(Types.DOUBLE()), [1, None], [1.0, None]),
    (
        Types.MAP(Types.STRING(), Types.INT()),
        Types.MAP(Types.STRING(), Types.DOUBLE()),
        {"a": 1, "b": None},
        {"a": 1.0, "b": None},
    ),
    (
        Types.TUPLE([Types.STRING(), Types.INT()]),
        Types.TUPLE([Types.STRING(), Types.DOUBLE()]),
        ("a", 1),
        ("a", 1.0),
    ),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), CHANGES, ids=repr)
def test_a_compatible_change_keeps_every_value(
    old: TypeInformation, new: TypeInformation, value: Any, expected: Any
) -> None:
    found = compatibility(old, new)
    assert isinstance(found, Migration)
    migrated = found.convert(value)
    assert repr(migrated) == repr(expected)
    assert migrated == expected
    # Migrated values need not be checked before they are written.
    writer = serializer_for(new)
    assert writer.coerce(migrated) == migrated
    assert found.same_bytes == (serializer_for(old).encode(value) == writer.write(migrated))


REFUSED: list[tuple[TypeInformation, TypeInformation, str]] = [
    (Types.LONG(), Types.INT(), "not every value of LONG is one of INT"),
    (Types.LONG(), Types.DOUBLE(), "LONG"),
    (Types.DOUBLE(), Types.FLOAT(), "DOUBLE"),
    (Types.BIG_INT(), Types.LONG(), "BIG_INT"),
    (Types.INT(), Types.STRING(), "STRING"),
    (Types.BOOLEAN(), Types.INT(), "BOOLEAN"),
    (Types.LIST(Types.LONG()), Types.OBJECT_ARRAY(Types.LONG()), "OBJECT_ARRAY"),
    (
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.PRIMITIVE_ARRAY(Types.SHORT()),
        r"PRIMITIVE_ARRAY\(BYTE\)",
    ),
    (Types.PICKLED_BYTE_ARRAY(), Types.LONG(), "pickled"),
    (Types.LONG(), Types.PICKLED_BYTE_ARRAY(), "pickled"),
    (Types.LIST(Types.PICKLED_BYTE_ARRAY()), Types.LIST(Types.LONG()), r"in \[\], pickled"),
    (Types.TUPLE([Types.INT()]), Types.TUPLE([Types.INT(), Types.INT()]), "1 fields is none of 2"),
    (
        Types.MAP(Types.INT(), Types.INT()),
        Types.MAP(Types.LONG(), Types.INT()),
        "keys of a map stay INT",
    ),
    (OLD, Types.ROW_NAMED(["n"], [Types.STRING()]), "in n, not every value of INT"),
    (
        Types.ROW_NAMED(["a"], [Types.TUPLE([Types.LONG()])]),
        Types.ROW_NAMED(["a"], [Types.TUPLE([Types.INT()])]),
        r"in a\.f0, ",
    ),
]


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED, ids=repr)
def test_an_incompatible_change_is_rejected_where_it_is(
    old: TypeInformation, new: TypeInformation, reason: str
) -> None:
    found = compatibility(old, new)
    assert isinstance(found, Incompatible)
    assert re.search(reason, found.reason), found.reason


@given(TYPES)
def test_a_type_is_compatible_with_itself_as_it_is(type_info: TypeInformation) -> None:
    assert compatibility(type_info, type_info) == AsIs()


def is_same(one: object, other: object) -> bool:
    """Compare values: a NaN is equal to none, and equal sets may be written in another order."""
    return one == other or repr(one) == repr(other)


@given(st.data(), st.lists(TYPES, min_size=1, max_size=3), st.lists(TYPES, max_size=2))
def test_fields_come_and_go_while_the_others_stay(
    data: st.DataObject, kept: list[TypeInformation], removed: list[TypeInformation]
) -> None:
    old_fields = [(f"k{i}", t) for i, t in enumerate(kept)]
    old_fields += [(f"r{i}", t) for i, t in enumerate(removed)]
    old_fields = data.draw(st.permutations(old_fields))
    new_fields = [(f"k{i}", t) for i, t in enumerate(kept)] + [("added", Types.LONG())]
    old = Types.ROW_NAMED([n for n, _ in old_fields], [t for _, t in old_fields])
    new = Types.ROW_NAMED([n for n, _ in new_fields], [t for _, t in new_fields])
    found = compatibility(old, new)
    assert isinstance(found, Migration)
    row = data.draw(values_of(old))
    migrated = found.convert(row)
    assert migrated["added"] is None
    for i in range(len(kept)):
        assert is_same(migrated[f"k{i}"], row[f"k{i}"])
    serializer = serializer_for(new)
    assert is_same(serializer.decode(serializer.write(migrated)), migrated)
