"""Rows as operator state: the elements of lists, and the entries of broadcast maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from penstock.errors.base import short_repr
from penstock.snapshots.writing.bad_values import convert_each
from penstock.snapshots.writing.columns.python_values import from_column
from penstock.snapshots.writing.row_encoder import Problem
from penstock.state.keys import KeyCodec
from penstock.state.operator.states import (
    LARGEST_OPERATOR_STATE,
    RedistributionMode,
    StoredList,
)
from penstock.types.serializers import serializer_for
from penstock.types.signature import type_signature

_pack = msgspec.msgpack.Encoder().encode


def broadcast_map(
    uid: str, descriptor: MapStateDescriptor, pairs: Sequence[tuple[Any, Any]]
) -> tuple[StoredList, list[Problem]]:
    """Return the stored form of a broadcast map, and the problems of its entries."""
    codec = KeyCodec(descriptor.key_type_info, uid)
    key_of, value_of = map(from_column, (descriptor.key_type_info, descriptor.value_type_info))
    serialize = serializer_for(descriptor.value_type_info).encode
    codes, bad_keys = convert_each([key for key, _ in pairs], lambda key: codec.encode(key_of(key)))
    values, bad_values = convert_each(
        [value for _, value in pairs],
        lambda value: None if value is None else serialize(value_of(value)),
    )
    problems = [
        Problem(
            uid,
            f"it is not of the type {type_signature(type_info)}",
            descriptor.name,
            column,
            str(short_repr(pairs[bad.row][0])),
            "" if column == "key" else str(short_repr(pairs[bad.row][1])),
        )
        for column, type_info, found in (
            ("key", descriptor.key_type_info, bad_keys),
            ("value", descriptor.value_type_info, bad_values),
        )
        for bad in found
    ]
    entries: dict[bytes, bytes | None] = {}
    for row, (code, value) in enumerate(zip(codes, values, strict=True)):
        if code is not None and code in entries:
            key = str(short_repr(pairs[row][0]))
            problems.append(Problem(uid, "several rows have this key", descriptor.name, key=key))
        elif code is not None:
            entries[code] = value
    elements = [_pack(entry) for entry in sorted(entries.items(), key=lambda e: e[0])]
    signature = type_signature(descriptor.type_info)
    stored = StoredList(RedistributionMode.BROADCAST, signature, elements)
    return stored, problems + _size_problems(uid, descriptor, stored)


def operator_list(
    uid: str,
    descriptor: ListStateDescriptor,
    distribution: RedistributionMode,
    elements: Sequence[Any],
) -> tuple[StoredList, list[Problem]]:
    """Return the stored form of a list, all of its elements, and the problems of these."""
    convert = from_column(descriptor.element_type_info)
    serialize = serializer_for(descriptor.element_type_info).encode
    encoded, bad = convert_each(list(elements), lambda value: serialize(convert(value)))
    signature = type_signature(descriptor.element_type_info)
    problems = [
        Problem(
            uid,
            f"it is not of the type {signature}",
            descriptor.name,
            "list_element",
            value=str(short_repr(elements[one.row])),
        )
        for one in bad
    ]
    stored = StoredList(distribution, signature, [data for data in encoded if data is not None])
    return stored, problems + _size_problems(uid, descriptor, stored)


def _size_problems(uid: str, descriptor: StateDescriptor, stored: StoredList) -> list[Problem]:
    size = sum(map(len, stored.elements))
    if size <= LARGEST_OPERATOR_STATE:
        return []
    reason = f"it has {size:,} bytes, and operator state at most {LARGEST_OPERATOR_STATE:,}"
    return [Problem(uid, reason, descriptor.name)]
