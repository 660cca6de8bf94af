"""The keys that filters of a query leave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In

from penstock.common.typeinfo import BasicType, BasicTypeInfo, TupleTypeInfo
from penstock.errors import SnapshotError
from penstock.snapshots.json_values import encoded_key
from penstock.snapshots.keyed_state import KeyedState
from penstock.spark.state.shapes import PLAIN

_EXACT = {
    BasicType.STRING,
    BasicType.BOOLEAN,
    BasicType.BYTE,
    BasicType.SHORT,
    BasicType.INT,
    BasicType.LONG,
}
"""Types whose values are equal for Spark if, and only if, they are the same key."""
_MOST_KEYS = 10_000


def keys_left(state: KeyedState, filters: Sequence[Filter]) -> frozenset[bytes] | None:
    """Return the stored bytes of the keys that may pass all filters; None if any may.

    Rows are filtered by Spark again, so it is enough that no key is left out that may pass.
    """
    names = _fields(state)
    if not names:
        return None
    values = [_values(name, filters) for name in names]
    found: set[bytes] = set()
    if math.prod(len(given) if given is not None else _MOST_KEYS for given in values) >= _MOST_KEYS:
        return None
    for combination in product(*(given or () for given in values)):
        key = combination[0] if names == [PLAIN] else list(combination)
        try:
            found.add(encoded_key(state.key_codec, key))
        except SnapshotError:
            continue  # it is out of the range of the type, so no key equals it
    return frozenset(found)


def _fields(state: KeyedState) -> list[str]:
    """Return the fields of a key's struct, if equal values in all of them are the same key."""
    match state.key_type_info:
        case BasicTypeInfo(kind) if kind in _EXACT:
            return [PLAIN]
        case TupleTypeInfo(types) if all(
            isinstance(one, BasicTypeInfo) and one.kind in _EXACT for one in types
        ):
            return [f"f{number}" for number in range(len(types))]
    return []


def _values(name: str, filters: Iterable[Filter]) -> set[Any] | None:
    """Return the values of a field of the key that pass all filters, None for all of them."""
    left: set[Any] | None = None
    for one in filters:
        match one:
            case EqualTo(("key", field), value) | EqualNullSafe(("key", field), value):
                given = {value}
            case In(("key", field), values):
                given = set(values)
            case _:
                continue
        if field == name:
            left = given if left is None else left & given
    return left
