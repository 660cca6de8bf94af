"""Serializes values by their declared type.

Typed values are MessagePack without any type names in it, decoded by a decoder that knows the type;
only values declared as pickled (or not declared at all) are pickled. The bytes are part of every
checkpoint: they may never change.
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
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeType,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    is_immutable,
)
from penstock.errors import TypeMismatchError
from penstock.types.coercion import INTEGER_BITS, Coercion, coercion_for
from penstock.types.traversal import Convert, TypeVisitor, identity, or_none

_WHOLE = ""  # the path of the value itself


class Serializer:
    """Encodes and decodes the values of one type.

    ``encode`` checks and writes. Where a value was checked before, ``coerce`` and ``write`` are the
    two halves: ``coerce`` returns the canonical value or raises ``TypeMismatchError``, ``write``
    takes what ``coerce`` returned. A value whose class is exactly ``plain`` may skip ``coerce``.
    ``immutable`` tells that a value cannot change between the two.
    """

    __slots__ = ("coerce", "decode", "encode", "immutable", "plain", "type_info", "write")

    def __init__(self, type_info: TypeInformation, *, rounds: bool = False) -> None:
        self.type_info = type_info
        self.immutable = is_immutable(type_info)
        self.coerce: Coercion = coercion_for(type_info, rounds=rounds)
        self.plain: type | None = None
        if isinstance(type_info, BasicTypeInfo):
            self.plain = _PLAIN_CLASSES.get(type_info.kind)
        self.write: Callable[[Any], bytes]
        self.decode: Callable[[bytes], Any]
        if isinstance(type_info, PickledBytesTypeInfo):
            self.write, self.decode = _pickle, pickling.loads
        else:
            wire = wire_of(type_info)
            self.write, self.decode = _writer(wire, type_info), _reader(wire)
        self.encode: Callable[[Any], bytes] = _checked(self.coerce, self.write, self.plain)


def serializer_for(type_info: TypeInformation | None) -> Serializer:
    """Return the serializer of state of a declared type; without one, values are pickled."""
    return Serializer(PickledBytesTypeInfo() if type_info is None else type_info)


def edge_serializer_for(type_info: TypeInformation | None) -> Serializer:
    """Return the serializer of records that leave a step, where a FLOAT has 32 bits."""
    return Serializer(PickledBytesTypeInfo() if type_info is None else type_info, rounds=True)


class Wire(msgspec.Struct, frozen=True):
    """The MessagePack form of a type, with the conversions that msgspec does not do itself.

    ``shape`` is the type a MessagePack decoder is made for, ``to_wire`` and ``from_wire`` convert a
    value to that shape and back.
    """

    shape: Any
    to_wire: Convert | None = None
    from_wire: Convert | None = None


def _checked(
    coerce: Coercion, write: Callable[[Any], bytes], plain: type | None
) -> Callable[[Any], bytes]:
    exact, normal = coerce.exact, coerce.normal

    def encode_plain(value: Any) -> bytes:
        return write(value) if value.__class__ is plain else write(normal(value, ""))

    def encode(value: Any) -> bytes:
        return write(value) if exact(value) else write(normal(value, ""))

    return encode if plain is None else encode_plain


def _writer(wire: Wire, type_info: TypeInformation) -> Callable[[Any], bytes]:
    pack = msgspec.msgpack.Encoder().encode
    to_wire = wire.to_wire
    if isinstance(type_info, BasicTypeInfo):
        if type_info.kind in INTEGER_BITS:
            return _bounded_writer(pack, 1 << (INTEGER_BITS[type_info.kind] - 1), type_info)
        if to_wire is None and type_info.kind not in (BasicType.STRING, BasicType.CHAR):
            return pack

    def write(value: Any) -> bytes:
        try:
            return pack(value)
        except UnicodeEncodeError as error:
            raise TypeMismatchError(_WHOLE, value, type_info) from error

    def write_converted(value: Any) -> bytes:
        try:
            return pack(to_wire(value))  # type: ignore[misc]
        except UnicodeEncodeError as error:
            raise TypeMismatchError(_WHOLE, value, type_info) from error

    return write if to_wire is None else write_converted


def _bounded_writer(
    pack: Callable[[Any], bytes], bound: int, type_info: TypeInformation
) -> Callable[[Any], bytes]:
    # A plain int skips `coerce`, so this is where its range is checked.
    lowest, highest = -bound, bound - 1

    def write(value: Any) -> bytes:
        if lowest <= value <= highest:
            return pack(value)
        raise TypeMismatchError(_WHOLE, value, type_info)

    return write


def _reader(wire: Wire) -> Callable[[bytes], Any]:
    unpack = msgspec.msgpack.Decoder(wire.shape).decode
    from_wire = wire.from_wire
    if from_wire is None:
        return unpack
    return lambda data: from_wire(unpack(data))


_PLAIN_CLASSES: dict[BasicType, type] = {
    **dict.fromkeys(INTEGER_BITS, int),
    BasicType.BIG_INT: int,
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: Decimal,
}

_SHAPES: dict[BasicType | SqlTimeType, type] = {
    **dict.fromkeys(INTEGER_BITS, int),
    BasicType.STRING: str,
    BasicType.CHAR: str,
    BasicType.BOOLEAN: bool,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.BIG_DEC: Decimal,
    SqlTimeType.DATE: datetime.date,
    SqlTimeType.TIME: datetime.time,
    SqlTimeType.TIMESTAMP: datetime.datetime,
}


def wire_of(type_info: TypeInformation) -> Wire:
    """Return the wire format of a type nested in another, where pickled values are bytes."""
    return _Wires().visit(type_info)


class _Wires(TypeVisitor[Wire]):
    def nullable(self, result: Wire) -> Wire:
        to_wire, from_wire = result.to_wire, result.from_wire
        return Wire(
            result.shape | None, to_wire and or_none(to_wire), from_wire and or_none(from_wire)
        )

    def visit_basic(self, type_info: BasicTypeInfo) -> Wire:
        if type_info.kind is BasicType.BIG_INT:
            return Wire(bytes, _big_int_to_bytes, _big_int_from_bytes)
        if type_info.kind is BasicType.INSTANT:
            return Wire(tuple[int, int], _instant_to_pair, lambda pair: Instant(*pair))
        return Wire(_SHAPES[type_info.kind])

    def visit_sql_time(self, type_info: SqlTimeTypeInfo) -> Wire:
        return Wire(_SHAPES[type_info.kind])

    def visit_pickled(self, type_info: PickledBytesTypeInfo) -> Wire:
        return Wire(bytes, _pickle, pickling.loads)

    def visit_bytes(self, type_info: TypeInformation) -> Wire:
        return Wire(bytes)

    def visit_array(self, element: Wire, type_info: TypeInformation) -> Wire:
        return _list_wire(element)

    def visit_map(self, key: Wire, value: Wire, type_info: MapTypeInfo) -> Wire:
        if key.shape in (str, int) and value.to_wire is None:
            return Wire(GenericAlias(dict, (key.shape, value.shape)))
        pairs = _list_wire(_tuple_wire([key, value]))
        convert_to, convert_from = pairs.to_wire or list, pairs.from_wire or list
        return Wire(
            pairs.shape,
            lambda mapping: convert_to(mapping.items()),
            lambda data: dict(convert_from(data)),
        )

    def visit_tuple(self, fields: list[Wire], type_info: TupleTypeInfo) -> Wire:
        return _tuple_wire(fields)

    def visit_row(self, fields: list[Wire], type_info: RowTypeInfo) -> Wire:
        names = type_info.get_field_names()
        inner = _tuple_wire([Wire(int), *fields])
        convert_to, convert_from = inner.to_wire or identity, inner.from_wire or identity

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


def _tuple_wire(fields: list[Wire]) -> Wire:
    return Wire(
        GenericAlias(tuple, tuple(field.shape for field in fields)),
        _each([field.to_wire for field in fields]),
        _each([field.from_wire for field in fields]),
    )


def _each(converts: list[Convert | None]) -> Convert | None:
    if not any(converts):
        return None
    filled = [convert or identity for convert in converts]
    return lambda value: tuple([convert(item) for convert, item in zip(filled, value, strict=True)])


def _list_wire(element: Wire) -> Wire:
    return Wire(
        GenericAlias(list, (element.shape,)),
        _map_over(element.to_wire),
        _map_over(element.from_wire),
    )


def _map_over(convert: Convert | None) -> Convert | None:
    return convert and (lambda values: list(map(convert, values)))


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
