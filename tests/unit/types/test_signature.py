from __future__ import annotations

import pytest
from hypothesis import given

from penstock.common import TypeInformation, Types
from penstock.types.signature import parse_signature, type_signature
from tests.unit.types.typed_values import TYPES

SPELLINGS: list[tuple[TypeInformation, str]] = [
    (Types.LONG(), "LONG"),
    (Types.BIG_DEC(), "BIG_DEC"),
    (Types.SQL_TIMESTAMP(), "SQL_TIMESTAMP"),
    (Types.PICKLED_BYTE_ARRAY(), "PICKLED_BYTE_ARRAY"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PRIMITIVE_ARRAY(BYTE)"),
    (Types.MAP(Types.STRING(), Types.LIST(Types.LONG())), "MAP(STRING, LIST(LONG))"),
    (Types.TUPLE([]), "TUPLE()"),
    (Types.TUPLE([Types.INT(), Types.INT()]), "TUPLE(INT, INT)"),
    (Types.ROW([Types.INT()]), "ROW(f0: INT)"),
    (
        Types.ROW_NAMED(["name", "a: INT, b"], [Types.STRING(), Types.INT()]),
        'ROW(name: STRING, "a: INT, b": INT)',
    ),
]


@pytest.mark.parametrize(("type_info", "text"), SPELLINGS, ids=[text for _, text in SPELLINGS])
def test_a_type_has_the_text_it_always_had(type_info: TypeInformation, text: str) -> None:
    assert type_signature(type_info) == text
    assert parse_signature(text) == type_info


@given(TYPES)
def test_the_text_of_every_type_can_be_read_back(type_info: TypeInformation) -> None:
    assert parse_signature(type_signature(type_info)) == type_info


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Long",
        "LONG LONG",
        "LIST",
        "LIST(LONG",
        "LIST(LONG))",
        "LIST(LONG, LONG)",
        "MAP(LONG)",
        "ROW(LONG)",
        "ROW(a: LONG, a: LONG)",
        "ROW((: LONG)",
        "PRIMITIVE_ARRAY(STRING)",
        "TUPLE(LONG STRING)",
        "LONG!",
    ],
)
def test_what_is_no_types_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_signature(text)
