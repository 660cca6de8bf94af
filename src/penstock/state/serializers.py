"""Values to bytes and back, by declared type.

Typed values are MessagePack without any type names in it, read back by a decoder that knows the
type; only values declared as pickled (or not declared at all) are pickled.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from types import GenericAlias
from typing import Any

import msgspec

from penstock.common import pickling
from penstock.common.row import Row, RowKind
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
    TypeInformation,
    is_immutable,
)
from penstock.errors import TypeMismatchError
from penstock.state.fitting import INTEGER_BITS, Fit, fit_for

__all__ = ["Serializer", "Wire", "edge_serializer_for", "serializer_for", "wire_of"]

Convert = Callable[[Any], Any]

_PICKLED = object()
_WHOLE = ""  # the path of the value itself


class Serializer:
    """Encodes and decodes the values of one type.

    ``encode`` checks and writes. Where a value was checked before, ``fit`` and ``write`` are its
    two halves: ``fit`` returns the canonical value or raises ``TypeMismatchError``, ``write``
    takes what ``fit`` returned. A value whose class is exactly ``plain`` may skip ``fit``.
    ``immutable`` says that nobody can change a value between the two.
    """

    __slots__ = ("decode", "encode", "fit", "immutable", "plain", "type_info", "write")

    def __init__(self, type_info: TypeInformation, *, rounds: bool = False) -> None:
        self.type_info = type_info
        self.immutable = is_immutable(type_info)
        self.fit: Fit = fit_for(type_info, rounds=rounds)
        self.plain: type | None = _plain_class(type_info)
        wire = _wire(type_info)
        self.write: Callable[[Any], bytes] = _writer(wire, type_info)
        self.decode: Callable[[bytes], Any] = _reader(wire)
        self.encode: Callable[[Any], bytes] = _checked(self.fit, self.write, self.plain)


def serializer_for(type_info: TypeInformation | None) -> Serializer:
    """Return the serializer of state of a declared type; without one, values are pickled."""
    return Serializer(PickledBytesTypeInfo() if type_info is None else type_info)


def edge_serializer_for(type_info: TypeInformation | None) -> Serializer:
    """Return the serializer of records that leave a step, where a FLOAT has 32 bits."""
    return Serializer(PickledBytesTypeInfo() if type_info is None else type_info, rounds=True)


class Wire(msgspec.Struct, frozen=True):
    """What a type looks like to MessagePack; no conversion where msgspec does it itself.

    ``shape`` is what a MessagePack decoder is made for, ``to_wire`` and ``from_wire`` lead from a
    value to what has that shape and back.
    """

    shape: Any
    to_wire: Convert | None = None
    from_wire: Convert | None = None


def _checked(fit: Fit, write: Callable[[Any], bytes], plain: type | None) -> Callable[[Any], bytes]:
    exact, normal = fit.exact, fit.normal

    def encode_plain(value: Any) -> bytes:
        return write(value) if value.__class__ is plain else write(normal(value, ""))

    def encode(value: Any) -> bytes:
        return write(value) if exact(value) else write(normal(value, ""))

    return encode if plain is None else encode_plain


def _writer(wire: Wire, type_info: TypeInformation) -> Callable[[Any], bytes]:
    pack = msgspec.msgpack.Encoder().encode
    if isinstance(type_info, BasicTypeInfo) and type_info.kind in INTEGER_BITS:
        return _bounded_writer(pack, 1 << (INTEGER_BITS[type_info.kind] - 1), type_info)
    if isinstance(type_info, PickledBytesTypeInfo):
        return _pickle
    to_wire = wire.to_wire
    if isinstance(type_info, BasicTypeInfo) and to_wire is None:
        if type_info.kind in (BasicType.STRING, BasicType.CHAR):
            return _text_writer(pack, type_info)
        return pack

    def write(value: Any) -> bytes:
        try:
            return pack(value if to_wire is None else to_wire(value))
        except UnicodeEncodeError as error:
            raise TypeMismatchError(_WHOLE, value, type_info) from error

    return write


def _bounded_writer(
    pack: Callable[[Any], bytes], bound: int, type_info: TypeInformation
) -> Callable[[Any], bytes]:
    # A plain int skips `fit`, so this is where its range is seen.
    lowest, highest = -bound, bound - 1

    def write(value: Any) -> bytes:
        if lowest <= value <= highest:
            return pack(value)
        raise TypeMismatchError(_WHOLE, value, type_info)

    return write


def _text_writer(
    pack: Callable[[Any], bytes], type_info: TypeInformation
) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        try:
            return pack(value)
        except UnicodeEncodeError as error:
            raise TypeMismatchError(_WHOLE, value, type_info) from error

    return write


def _reader(wire: Wire) -> Callable[[bytes], Any]:
    if wire.shape is _PICKLED:
        return pickling.loads
    unpack = msgspec.msgpack.Decoder(wire.shape).decode
    from_wire = wire.from_wire
    if from_wire is None:
        return unpack
    return lambda data: from_wire(unpack(data))


def _plain_class(type_info: TypeInformation) -> type | None:
    if not isinstance(type_info, BasicTypeInfo):
        return None
    if type_info.kind in INTEGER_BITS or type_info.kind is BasicType.BIG_INT:
        return int
    return _PLAIN_CLASSES.get(type_info.kind)


_PLAIN_CLASSES: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: Decimal,
}

_BASIC_SHAPES: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.CHAR: str,
    BasicType.BOOLEAN: bool,
    BasicType.BYTE: int,
    BasicType.SHORT: int,
    BasicType.INT: int,
    BasicType.LONG: int,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: Decimal,
}

_SQL_TIME_SHAPES: dict[SqlTimeType, type] = {
    SqlTimeType.DATE: datetime.date,
    SqlTimeType.TIME: datetime.time,
    SqlTimeType.TIMESTAMP: datetime.datetime,
}


def _wire(type_info: TypeInformation) -> Wire:
    match type_info:
        case BasicTypeInfo(BasicType.BIG_INT):
            return Wire(bytes, _big_int_to_bytes, _big_int_from_bytes)
        case BasicTypeInfo(BasicType.INSTANT):
            return Wire(tuple[int, int], _instant_to_pair, lambda pair: Instant(*pair))
        case BasicTypeInfo(kind):
            return Wire(_BASIC_SHAPES[kind])
        case SqlTimeTypeInfo(kind=time_kind):
            return Wire(_SQL_TIME_SHAPES[time_kind])
        case PickledBytesTypeInfo():
            return Wire(_PICKLED)
        case TupleTypeInfo(field_types):
            return _tuple_wire([wire_of(field_type) for field_type in field_types])
        case RowTypeInfo(field_types):
            fields = [_or_none(wire_of(field_type)) for field_type in field_types]
            return _row_wire(fields, type_info.get_field_names())
        case PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)):
            return Wire(bytes)
        case ListTypeInfo(element) | PrimitiveArrayTypeInfo(element):
            return _list_wire(wire_of(element))
        case BasicArrayTypeInfo(element) | ObjectArrayTypeInfo(element):
            return _list_wire(_or_none(wire_of(element)))
        case MapTypeInfo(key, value):
            return _map_wire(wire_of(key), _or_none(wire_of(value)))
    message = f"penstock has no encoding for {type_info!r}"
    raise TypeError(message)


def wire_of(type_info: TypeInformation) -> Wire:
    """Return how a type lies inside of another one, where pickled values are bytes."""
    wire = _wire(type_info)
    return Wire(bytes, _pickle, pickling.loads) if wire.shape is _PICKLED else wire


def _or_none(wire: Wire) -> Wire:
    return Wire(wire.shape | None, _unless_none(wire.to_wire), _unless_none(wire.from_wire))


def _unless_none(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _tuple_wire(fields: list[Wire]) -> Wire:
    shape = GenericAlias(tuple, tuple(field.shape for field in fields))
    return Wire(
        shape,
        _each([field.to_wire for field in fields]),
        _each([field.from_wire for field in fields]),
    )


def _each(converts: list[Convert | None]) -> Convert | None:
    if not any(converts):
        return None
    filled = [convert or _same for convert in converts]
    return lambda value: tuple([convert(item) for convert, item in zip(filled, value, strict=True)])


def _row_wire(fields: list[Wire], names: list[str]) -> Wire:
    inner = _tuple_wire([Wire(int), *fields])
    convert_to, convert_from = inner.to_wire or _same, inner.from_wire or _same

    def to_wire(row: Row) -> Any:
        kind = row.get_row_kind()
        return convert_to((0 if kind is RowKind.INSERT else kind.value, *row._values))

    def from_wire(value: Any) -> Row:
        kind, *values = convert_from(value)
        row = Row(*values)
        row.set_field_names(list(names))
        if kind:
            row.set_row_kind(RowKind(kind))
        return row

    return Wire(inner.shape, to_wire, from_wire)


def _list_wire(element: Wire) -> Wire:
    return Wire(
        GenericAlias(list, (element.shape,)),
        _map_over(element.to_wire),
        _map_over(element.from_wire),
    )


def _map_over(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: list(map(convert, values))


def _map_wire(key: Wire, value: Wire) -> Wire:
    if key.shape in (str, int) and value.to_wire is None:
        return Wire(GenericAlias(dict, (key.shape, value.shape)))
    pair = _tuple_wire([key, value])
    pairs = _list_wire(pair)
    convert_to, convert_from = pairs.to_wire or list, pairs.from_wire or list
    return Wire(
        pairs.shape,
        lambda mapping: convert_to(mapping.items()),
        lambda data: dict(convert_from(data)),
    )


def _same(value: Any) -> Any:
    return value


def _pickle(value: Any) -> bytes:
    try:
        return pickling.dumps(value)
    except Exception as error:
        raise TypeMismatchError(_WHOLE, value, PickledBytesTypeInfo()) from error


def _instant_to_pair(value: Instant) -> tuple[int, int]:
    return value.seconds, value.nanos


def _big_int_to_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _big_int_from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
