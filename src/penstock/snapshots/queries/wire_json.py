"""Stored values as JSON, one by one; the same as `json_values` makes of whole tables.

A table costs a millisecond however short it is, which is too much for a look-up of one key.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from penstock.common.row import RowKind
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.savepoint.columns import ROW_KIND, column_of
from penstock.snapshots.json_values import BASE64
from penstock.state.keys import decode_key
from penstock.types.serializers import wire_of
from penstock.types.traversal import TypeVisitor, or_none

ToJson = Callable[[Any], Any]

_KINDS = {kind.value: str(kind) for kind in RowKind if kind is not RowKind.INSERT}
_LONGEST_DECIMAL_BITS = 10_000  # as in `savepoint.columns`


def value_reader(type_info: TypeInformation) -> Callable[[bytes], Any]:
    """Return what makes JSON of the stored bytes of a value; pickled ones stay bytes."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return _base64
    to_json = _ToJson().visit(type_info)
    unpack = msgspec.msgpack.Decoder(wire_of(type_info).shape).decode
    if to_json is _same:
        return unpack
    return lambda data: to_json(unpack(data))


def key_reader(type_info: TypeInformation | None) -> Callable[[bytes], Any]:
    """Return what makes JSON of an encoded key; keys without a declared type become text."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return _as_text
    to_json, to_wire = _ToJson().visit(type_info), wire_of(type_info).to_wire
    if to_json is _text:
        return lambda data: _plain_text(decode_key(data))
    if to_wire is None:
        return lambda data: to_json(decode_key(data))
    return or_none_key(lambda key: to_json(to_wire(key)))


def or_none_key(convert: ToJson) -> Callable[[bytes], Any]:
    """Return a conversion of encoded keys; a key may be None."""
    either = or_none(convert)
    return lambda data: either(decode_key(data))


class _ToJson(TypeVisitor[ToJson]):
    """Conversions from the wire form of values to JSON."""

    def nullable(self, result: ToJson) -> ToJson:
        return result if result is _same else or_none(result)

    def visit_basic(self, type_info: BasicTypeInfo) -> ToJson:
        match type_info.kind:
            case BasicType.STRING | BasicType.CHAR:
                return _text
            case BasicType.BIG_INT:
                return _digits
            case BasicType.BIG_DEC:
                return str
            case BasicType.INSTANT:
                return lambda pair: {"seconds": pair[0], "nanos": pair[1]}
            case BasicType.DOUBLE:
                return _number
            case BasicType.FLOAT:
                # In a column it has 32 bits.
                return lambda value: _number(pa.scalar(value, pa.float32()).as_py())
        return _same

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> ToJson:
        if type_info.kind is SqlTimeType.DATE:
            return lambda value: value.isoformat()
        arrow = column_of(type_info).arrow
        return lambda value: pa.scalar(value, arrow).as_py().isoformat()

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> ToJson:
        return _base64

    def visit_bytes(self, type_info: TypeInformation) -> ToJson:
        return _base64

    def visit_array(self, element: ToJson, type_info: TypeInformation) -> ToJson:
        return _same if element is _same else lambda values: [element(v) for v in values]

    def visit_map(self, key: ToJson, value: ToJson, type_info: MapTypeInfo) -> ToJson:
        has_texts = pa.types.is_string(column_of(type_info.key).arrow)
        is_dict = wire_of(type_info).to_wire is None

        def to_json(mapping: Any) -> Any:
            pairs = mapping.items() if is_dict else mapping
            if has_texts:
                return {key(k): value(v) for k, v in pairs}
            return [[key(k), value(v)] for k, v in pairs]

        return to_json

    def visit_tuple(self, fields: list[ToJson], type_info: TupleTypeInfo) -> ToJson:
        named = list(zip(_names(type_info), fields, strict=True))

        def to_json(values: Any) -> Any:
            return {n: read(v) for (n, read), v in zip(named, values, strict=True)}

        return to_json

    def visit_row(self, fields: list[ToJson], type_info: RowTypeInfo) -> ToJson:
        named = list(zip(_names(type_info)[1:], fields, strict=True))

        def to_json(values: Any) -> Any:
            kind = _KINDS.get(values[0])
            found = {} if kind is None else {ROW_KIND: kind}
            for (name, read), value in zip(named, values[1:], strict=True):
                found[name] = read(value)
            return found

        return to_json


def _names(type_info: TypeInformation) -> list[str]:
    """Return the names of a struct's fields, which are distinct."""
    struct = column_of(type_info).arrow
    count = struct.num_fields if struct.num_fields > 1 or struct.field(0).name != "_" else 0
    return [struct.field(i).name for i in range(count)]


def _same(value: Any) -> Any:
    return value


def _text(value: str) -> str:
    return value


def _plain_text(key: Any) -> Any:
    return key if key is None else str(key).encode("utf-8", "backslashreplace").decode()


def _as_text(data: bytes) -> str:
    key = decode_key(data)
    text = key if isinstance(key, str) else repr(key)
    return text.encode("utf-8", "backslashreplace").decode()


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _digits(data: bytes) -> str:
    number = int.from_bytes(data, "big", signed=True)
    return str(number) if number.bit_length() < _LONGEST_DECIMAL_BITS else hex(number)


def _base64(data: bytes) -> dict[str, str]:
    return {BASE64: base64.b64encode(data).decode()}
