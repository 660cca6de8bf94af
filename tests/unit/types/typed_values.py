"""Hypothesis strategies for types and for values of them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.common import Row, RowKind, TypeInformation, Types
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = [BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG]
PRIMITIVES = [*NUMBERS, BasicType.BOOLEAN, BasicType.FLOAT, BasicType.DOUBLE, BasicType.CHAR]

SINGLE_TYPES: st.SearchStrategy[TypeInformation] = st.one_of(
    st.sampled_from(list(BasicType)).map(BasicTypeInfo),
    st.sampled_from(list(SqlTimeType)).map(SqlTimeTypeInfo),
    st.just(Types.PICKLED_BYTE_ARRAY()),
    st.sampled_from(PRIMITIVES).map(lambda kind: Types.PRIMITIVE_ARRAY(BasicTypeInfo(kind))),
    st.sampled_from([*PRIMITIVES, BasicType.STRING]).map(
        lambda kind: Types.BASIC_ARRAY(BasicTypeInfo(kind))
    ),
)


def _row_types(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
    fields = st.lists(st.tuples(st.text(max_size=4), inner), max_size=4, unique_by=lambda f: f[0])
    return fields.map(lambda fs: Types.ROW_NAMED([name for name, _ in fs], [t for _, t in fs]))


_SINGLE_KEY_TYPES: st.SearchStrategy[TypeInformation] = st.one_of(
    st.sampled_from(list(BasicType)).map(BasicTypeInfo),
    st.sampled_from(list(SqlTimeType)).map(SqlTimeTypeInfo),
)
KEY_TYPES: st.SearchStrategy[TypeInformation] = st.recursive(
    _SINGLE_KEY_TYPES, lambda inner: st.lists(inner, max_size=3).map(Types.TUPLE), max_leaves=4
)
"""Types whose values can be keys of a dict."""


def _larger(inner: st.SearchStrategy[TypeInformation]) -> st.SearchStrategy[TypeInformation]:
    return st.one_of(
        inner.map(Types.LIST),
        inner.map(Types.OBJECT_ARRAY),
        st.lists(inner, max_size=3).map(Types.TUPLE),
        _row_types(inner),
        st.builds(Types.MAP, KEY_TYPES, inner),
    )


TYPES: st.SearchStrategy[TypeInformation] = st.recursive(SINGLE_TYPES, _larger, max_leaves=5)

_BASIC_VALUES: dict[BasicType, st.SearchStrategy[Any]] = {
    BasicType.STRING: TEXT,
    BasicType.CHAR: st.characters(exclude_categories=["Cs"]),
    BasicType.BOOLEAN: st.booleans(),
    BasicType.FLOAT: st.floats(width=32, allow_nan=False),
    BasicType.DOUBLE: st.floats(allow_nan=False),
    BasicType.BIG_INT: st.integers(),
    BasicType.BIG_DEC: st.decimals(allow_nan=False),
    BasicType.INSTANT: st.builds(Instant, st.integers(-(2**40), 2**40), st.integers(0, 10**9 - 1)),
    **{
        kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for kind, bits in zip(NUMBERS, (8, 16, 32, 64), strict=True)
    },
}
_SQL_VALUES: dict[SqlTimeType, st.SearchStrategy[Any]] = {
    SqlTimeType.DATE: st.dates(),
    SqlTimeType.TIME: st.times().map(lambda time: time.replace(fold=0)),
    SqlTimeType.TIMESTAMP: st.datetimes().map(lambda moment: moment.replace(fold=0)),
}


def values_of(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type."""
    match type_info:
        case BasicTypeInfo(kind):
            return _BASIC_VALUES[kind]
        case SqlTimeTypeInfo(time_kind):
            return _SQL_VALUES[time_kind]
        case PickledBytesTypeInfo():
            return st.one_of(st.none(), st.integers(), st.frozensets(st.text(max_size=2)))
        case TupleTypeInfo(field_types):
            return st.tuples(*map(values_of, field_types))
        case RowTypeInfo(field_types):
            return st.builds(
                lambda kind, values: _row(type_info, kind, values),
                st.sampled_from(list(RowKind)),
                st.tuples(*(st.none() | values_of(field) for field in field_types)),
            )
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return st.binary(max_size=5)
        case ListTypeInfo(element) | PrimitiveArrayTypeInfo(element):
            return st.lists(values_of(element), max_size=3)
        case BasicArrayTypeInfo(element) | ObjectArrayTypeInfo(element):
            return st.lists(st.none() | values_of(element), max_size=3)
        case MapTypeInfo(key, value):
            return st.dictionaries(values_of(key), st.none() | values_of(value), max_size=3)
    raise AssertionError(type_info)


def _row(type_info: RowTypeInfo, kind: RowKind, values: tuple[Any, ...]) -> Row:
    row = Row.of_kind(kind, *values)
    row.set_field_names(type_info.get_field_names())
    return row
