"""Rows of states as JSON has them, and keys from JSON."""

from __future__ import annotations

import base64
import binascii
import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.common.row import Row
from penstock.common.time import Instant
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
from penstock.errors import KeyNotOfTypeError, TypeMismatchError, UnstableKeyError
from penstock.savepoint.columns import ROW_KIND
from penstock.state.keys import KeyCodec
from penstock.types.traversal import TypeVisitor, or_none

BASE64 = "base64"
"""The only field of the object that stands for bytes."""

FromJson = Callable[[Any], Any]


def encoded_key(codec: KeyCodec, key: Any) -> bytes:
    """Return the stored bytes of a key that came as JSON.

    Raises:
        KeyNotOfTypeError: it is not of the declared type.
    """
    type_info = codec.type_info or PickledBytesTypeInfo()
    try:
        return codec.encode(_FromJson().visit(type_info)(key))
    except (TypeMismatchError, UnstableKeyError, ValueError, TypeError, ArithmeticError) as error:
        raise KeyNotOfTypeError(key, repr(type_info), str(error)) from None
    except (KeyError, IndexError):
        reason = "it lacks fields of the type"
        raise KeyNotOfTypeError(key, repr(type_info), reason) from None


def key_of_text(codec: KeyCodec, text: str, decode: Callable[[str], Any]) -> Any:
    """Return a key as JSON that a user has typed: `decode` reads JSON.

    A text needs no quotes if keys are texts.
    """
    if isinstance(codec.type_info, BasicTypeInfo) and codec.type_info.kind in (
        BasicType.STRING,
        BasicType.CHAR,
        BasicType.BIG_DEC,
        BasicType.BIG_INT,
    ):
        return text
    try:
        return decode(text)
    except ValueError:
        # Dates, keys without a type: what is no JSON is a text.
        return text


class _FromJson(TypeVisitor[FromJson]):
    """Conversions from JSON to values of a type; coercion does the rest."""

    def nullable(self, result: FromJson) -> FromJson:
        return or_none(result)

    def visit_basic(self, type_info: BasicTypeInfo) -> FromJson:
        match type_info.kind:
            case BasicType.BIG_DEC:
                return lambda value: Decimal(str(value))
            case BasicType.BIG_INT:
                return int
            case BasicType.INSTANT:
                return _instant
        return _same

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> FromJson:
        match type_info.kind:
            case SqlTimeType.DATE:
                return datetime.date.fromisoformat
            case SqlTimeType.TIME:
                return datetime.time.fromisoformat
        return datetime.datetime.fromisoformat

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> FromJson:
        return _untyped

    def visit_bytes(self, type_info: TypeInformation) -> FromJson:
        return _bytes

    def visit_array(self, element: FromJson, type_info: TypeInformation) -> FromJson:
        return lambda values: [element(value) for value in _listed(values)]

    def visit_map(self, key: FromJson, value: FromJson, type_info: MapTypeInfo) -> FromJson:
        def from_json(given: Any) -> dict[Any, Any]:
            pairs = given.items() if isinstance(given, Mapping) else _listed(given)
            return {key(k): value(v) for k, v in pairs}

        return from_json

    def visit_tuple(self, fields: list[FromJson], type_info: TupleTypeInfo) -> FromJson:
        names = [f"f{position}" for position in range(len(fields))]
        return lambda given: tuple(_fields(given, names, fields))

    def visit_row(self, fields: list[FromJson], type_info: RowTypeInfo) -> FromJson:
        names = type_info.get_field_names()

        def from_json(given: Any) -> Row:
            row = Row(*_fields(given, names, fields))
            row.set_field_names(names)
            return row

        return from_json


def _same(value: Any) -> Any:
    return value


def _instant(value: Any) -> Instant:
    if isinstance(value, Mapping):
        return Instant(value["seconds"], value["nanos"])
    moment = datetime.datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    micros = (moment - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(
        microseconds=1
    )
    seconds, rest = divmod(micros, 1_000_000)
    return Instant(seconds, rest * 1000)


def _untyped(value: Any) -> Any:
    """Return a key without a declared type; a list stands for a tuple, of which keys are made."""
    if isinstance(value, list):
        return tuple(map(_untyped, value))
    if isinstance(value, Mapping):
        if value.keys() == {BASE64}:
            return _bytes(value)
        return {key: _untyped(one) for key, one in value.items()}
    return value


def _bytes(value: Any) -> bytes:
    text = value[BASE64] if isinstance(value, Mapping) else value
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"bytes are given in base64: {error}"
        raise ValueError(message) from None


def _listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        message = "a list is expected"
        raise TypeError(message)
    return value


def _fields(given: Any, names: list[str], fields: list[FromJson]) -> list[Any]:
    values = [given[name] for name in names] if isinstance(given, Mapping) else _listed(given)
    if len(values) != len(fields):
        message = f"{len(fields)} fields are expected, and there are {len(values)}"
        raise ValueError(message)
    return [field(value) for field, value in zip(fields, values, strict=True)]


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as JSON has them."""
    return list(map(_to_json(column.type), column.to_pylist()))


def _to_json(arrow: pa.DataType) -> Callable[[Any], Any]:
    """Return a conversion for values as Arrow returns them."""
    if pa.types.is_list(arrow):
        element = _to_json(arrow.value_type)
        return or_none(lambda values: [element(value) for value in values])
    if pa.types.is_map(arrow):
        return or_none(_map_to_json(arrow))
    if pa.types.is_struct(arrow):
        return or_none(_struct_to_json(arrow))
    if pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return or_none(lambda data: {BASE64: base64.b64encode(data).decode()})
    if pa.types.is_floating(arrow):
        return or_none(lambda number: number if math.isfinite(number) else str(number))
    if pa.types.is_temporal(arrow):
        return or_none(lambda moment: moment.isoformat())
    if pa.types.is_decimal(arrow):
        return or_none(str)
    return _same


def _map_to_json(arrow: pa.MapType) -> Callable[[Any], Any]:
    key, value = _to_json(arrow.key_type), _to_json(arrow.item_type)
    if pa.types.is_string(arrow.key_type):
        return lambda pairs: {key(k): value(v) for k, v in pairs}
    return lambda pairs: [[key(k), value(v)] for k, v in pairs]


def _struct_to_json(arrow: pa.StructType) -> Callable[[Any], Any]:
    fields = {arrow.field(i).name: _to_json(arrow.field(i).type) for i in range(arrow.num_fields)}

    def to_json(struct: dict[str, Any]) -> dict[str, Any]:
        found = {name: convert(struct[name]) for name, convert in fields.items()}
        if found.get(ROW_KIND, "") is None:
            del found[ROW_KIND]  # of a row that is inserted, as almost all are
        return found

    return to_json
