"""Encodes keys as bytes, and decodes them.

Two keys are equal if, and only if, their bytes are. The bytes depend on class and value only, never
on pickle, a hash seed or how an equal value was built; they contain their own length, and those of
one class sort like the keys (numbers, text, dates). They are part of every checkpoint: they may
never change.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row import Row, RowKind
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from penstock.errors import UnstableKeyError
from penstock.state.key_groups import LONG_KEY
from penstock.types.coercion import INTEGER_BITS, coercion_for

_END = 0x00  # ends a sequence; no key begins with it
_NONE = 0x01
_FALSE = 0x02
_TRUE = 0x03
_NEGATIVE_BIG = 0x05
_ZERO = 0x0E  # an int of n <= 8 bytes has the tag _ZERO + n, or _ZERO - n if negative
_POSITIVE_BIG = 0x17
INTEGER_TAG = _ZERO
"""The tag of an integer of n bytes is n more than this, or n less if it is negative."""
_FLOAT = 0x20
_STR = 0x30
_BYTES = 0x31
_DECIMAL = 0x40
_DATE = 0x50
_TIME = 0x51
_DATETIME = 0x52
_OFFSET_DATETIME = 0x53
_INSTANT = 0x54
_TUPLE = 0x60
_LIST = 0x61
_DICT = 0x62
_ROW = 0x63
_NAMED_ROW = 0x64

_INT_TAGS = {size: bytes((_ZERO + size,)) for size in range(-8, 9)}
_SMALL = 8
_LARGEST_SIZE = 0xFFFFFFFF

_UINT64 = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_SIGN = 1 << 63
_NAN_BITS = 0x7FF8 << 48
_MICROSECOND = datetime.timedelta(microseconds=1)
_YEAR_ONE = datetime.datetime(1, 1, 1)  # noqa: DTZ001  keys may be naive
_BIAS = 1 << 62


class _UnencodableError(Exception):
    """Carries the part of a key that has no canonical bytes."""


class KeyCodec:
    """Encodes and decodes the keys of one step.

    With a declared type a key is coerced to it first (``None`` is always accepted); without one,
    a key's class counts: 1, 1.0 and True are three keys.
    """

    __slots__ = ("decode", "encode", "step", "type_info")

    def __init__(self, type_info: TypeInformation | None = None, step: str = "") -> None:
        if isinstance(type_info, PickledBytesTypeInfo):
            type_info = None
        self.step = step
        self.type_info = type_info
        self.encode: Callable[[Any], bytes] = self._encoder(type_info)
        self.decode: Callable[[bytes], Any] = decode_key

    def __reduce__(self) -> tuple[type[KeyCodec], tuple[TypeInformation | None, str]]:
        return KeyCodec, (self.type_info, self.step)

    def _encoder(self, type_info: TypeInformation | None) -> Callable[[Any], bytes]:
        encoders, step = _ENCODERS, self.step

        def encode(key: Any) -> bytes:
            try:
                return encoders[key.__class__](key)
            except KeyError:
                raise UnstableKeyError(step, key) from None
            except _UnencodableError as error:
                raise UnstableKeyError(step, error.args[0]) from None

        if type_info is None:
            return encode
        coerce = coercion_for(type_info)
        exact, normal = coerce.exact, coerce.normal

        def encode_typed(key: Any) -> bytes:
            if not exact(key) and key is not None:
                key = normal(key, "")
            return encode(key)

        return encode_typed

    def encode_all(self, keys: Collection[Any], kind: type) -> list[bytes]:
        """Return the bytes of keys that are all of exactly one class; faster than one by one."""
        if kind is str and self.type_info in (None, Types.STRING()):
            return _encode_texts(keys)
        encode = _ENCODERS.get(kind) if self.type_info is None else None
        return list(map(encode or self.encode, keys))

    def parts(self, width: int) -> list[KeyCodec] | None:
        """Return a codec for each item of keys that are tuples.

        None if the type does not accept tuples of that width, or if coercion may make unequal items
        equal.
        """
        if self.type_info is None:
            return [KeyCodec(None, self.step)] * width
        if not isinstance(self.type_info, TupleTypeInfo):
            return None
        declared = self.type_info.field_types
        if len(declared) != width or not all(map(_keeps_values, declared)):
            return None
        return [KeyCodec(one, self.step) for one in declared]


def _keeps_values(type_info: TypeInformation) -> bool:
    return isinstance(type_info, BasicTypeInfo) and (
        type_info.kind in INTEGER_BITS or type_info.kind is BasicType.STRING
    )


def tuple_of(items: Iterable[bytes]) -> bytes:
    """Return the bytes of a tuple whose items have these bytes."""
    return b"\x60%b\0" % b"".join(items)


def are_plain_texts(keys: Collection[str], encoded: Sequence[bytes]) -> bool:
    """Tell whether `decode_plain_texts` can decode the routed form of these keys."""
    return len(max(encoded, key=len, default=b"")) < LONG_KEY and "\0" not in "".join(keys)


def decode_plain_texts(routed: pa.BinaryArray) -> list[str]:
    """Return the keys in routed keys of plain texts, all at once."""
    texts: list[str] = plain_texts(routed).to_pylist()
    return texts


def plain_texts(routed: pa.BinaryArray) -> pa.StringArray:
    """Return the same as a column."""
    # Key group (2 bytes), length (1), tag (1), then the text, then the terminator.
    return pc.binary_slice(routed, 4, -1).cast(pa.string())


def decode_key(data: bytes) -> Any:
    """Return the key that has these bytes."""
    if data[0] == _STR and data.find(0) == len(data) - 1:
        return data[1:-1].decode("utf-8", "surrogatepass")
    key, end = _decode(data, 0)
    if end != len(data):
        message = f"{len(data) - end} bytes too many after the key {key!r}"
        raise ValueError(message)
    return key


def _encode(key: Any) -> bytes:
    encoder = _ENCODERS.get(key.__class__)
    if encoder is None:
        raise _UnencodableError(key)
    return encoder(key)


def _encode_str(key: str) -> bytes:
    try:
        data = key.encode()
    except UnicodeEncodeError:
        data = key.encode("utf-8", "surrogatepass")
    # Searching the text is ten times faster than searching its bytes.
    if "\0" in key:
        data = data.replace(b"\0", b"\0\xff")
    return b"\x30%b\0" % data


def _encode_texts(keys: Collection[str]) -> list[bytes]:
    try:
        if "\0" not in "".join(keys):
            # The tag is the letter 0: tag, text and terminator are encoded in one go.
            return [f"0{key}\0".encode() for key in keys]
    except UnicodeEncodeError:
        pass  # a lone surrogate somewhere
    return list(map(_encode_str, keys))


def _encode_bytes(key: bytes) -> bytes:
    return b"\x31%b\0" % key.replace(b"\0", b"\0\xff")


def _encode_int(key: int) -> bytes:
    size = (key.bit_length() + 7) >> 3
    if key >= 0:
        if size <= _SMALL:
            return _INT_TAGS[size] + key.to_bytes(size, "big")
        return b"%c%b%b" % (_POSITIVE_BIG, size.to_bytes(4, "big"), key.to_bytes(size, "big"))
    complement = (key + (1 << (8 * size)) - 1).to_bytes(size, "big")
    if size <= _SMALL:
        return _INT_TAGS[-size] + complement
    return b"%c%b%b" % (_NEGATIVE_BIG, (_LARGEST_SIZE - size).to_bytes(4, "big"), complement)


def _encode_float(key: float) -> bytes:
    bits = _NAN_BITS if key != key else _UINT64.unpack(_DOUBLE.pack(key))[0]
    return b"%c%b" % (_FLOAT, _UINT64.pack(_flip(bits)))


def _flip(bits: int) -> int:
    """Make the bits of doubles sort like the doubles."""
    return bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN


def _unflip(bits: int) -> int:
    return bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1)


def _encode_decimal(key: Decimal) -> bytes:
    return b"%c%b\0" % (_DECIMAL, str(key).encode())


def _encode_date(key: datetime.date) -> bytes:
    return b"%c%b" % (_DATE, key.toordinal().to_bytes(4, "big"))


def _encode_time(key: datetime.time) -> bytes:
    if key.tzinfo is not None:
        raise _UnencodableError(key)
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return b"%c%b" % (_TIME, _UINT64.pack(seconds * 1_000_000 + key.microsecond))


def _encode_datetime(key: datetime.datetime) -> bytes:
    if key.tzinfo is None:
        return b"%c%b" % (_DATETIME, _UINT64.pack((key - _YEAR_ONE) // _MICROSECOND))
    # Only a fixed offset decodes to an equal key: a zone's rules may change.
    if key.tzinfo.__class__ is not datetime.timezone:
        raise _UnencodableError(key)
    offset = key.tzinfo.utcoffset(key) // _MICROSECOND
    local = (key.replace(tzinfo=None) - _YEAR_ONE) // _MICROSECOND
    instant = local - offset + _BIAS
    return b"%c%b%b" % (
        _OFFSET_DATETIME,
        _UINT64.pack(instant),
        _UINT64.pack(offset + _BIAS),
    )


def _encode_instant(key: Instant) -> bytes:
    seconds, nanos = key.seconds + _BIAS, key.nanos + _BIAS
    return b"%c%b%b" % (_INSTANT, _UINT64.pack(seconds), _UINT64.pack(nanos))


def _encode_tuple(key: tuple[Any, ...]) -> bytes:
    return tuple_of(map(_encode, key))


def _encode_list(key: list[Any]) -> bytes:
    return b"\x61%b\0" % b"".join(map(_encode, key))


def _encode_dict(key: dict[Any, Any]) -> bytes:
    pairs = sorted((_encode(name), _encode(value)) for name, value in key.items())
    return b"\x62%b\0" % b"".join(name + value for name, value in pairs)


def _encode_row(key: Row) -> bytes:
    kind = key.get_row_kind().value
    values = list(map(_encode, key))
    names = getattr(key, "_fields", None)
    if names is None:
        return b"%c%c%b\0" % (_ROW, kind, b"".join(values))
    named = b"".join(_encode(name) + value for name, value in zip(names, values, strict=True))
    return b"%c%c%b\0" % (_NAMED_ROW, kind, named)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"\x01",
    bool: lambda key: b"\x03" if key else b"\x02",
    int: _encode_int,
    float: _encode_float,
    str: _encode_str,
    bytes: _encode_bytes,
    Decimal: _encode_decimal,
    datetime.date: _encode_date,
    datetime.time: _encode_time,
    datetime.datetime: _encode_datetime,
    Instant: _encode_instant,
    tuple: _encode_tuple,
    list: _encode_list,
    dict: _encode_dict,
    Row: _encode_row,
}


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    decoder = _DECODERS.get(tag)
    if decoder is None:
        message = f"no key begins with the byte {tag:#04x}"
        raise ValueError(message)
    return decoder(data, at + 1)


def _terminated(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.index(b"\0", at)
    while data[end + 1 : end + 2] == b"\xff":
        end = data.index(b"\0", end + 2)
    return data[at:end].replace(b"\0\xff", b"\0"), end + 1


def _decode_str(data: bytes, at: int) -> tuple[str, int]:
    text, end = _terminated(data, at)
    return text.decode("utf-8", "surrogatepass"), end


def _decode_decimal(data: bytes, at: int) -> tuple[Decimal, int]:
    text, end = _terminated(data, at)
    return Decimal(text.decode()), end


def _int_decoder(size: int) -> Callable[[bytes, int], tuple[int, int]]:
    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + abs(size)
        value = int.from_bytes(data[at:end], "big")
        return (value if size >= 0 else value - (1 << (-8 * size)) + 1), end

    return decode


def _decode_big(data: bytes, at: int, negative: bool) -> tuple[int, int]:
    size = int.from_bytes(data[at : at + 4], "big")
    size = _LARGEST_SIZE - size if negative else size
    return _int_decoder(-size if negative else size)(data, at + 4)


def _decode_uint(data: bytes, at: int) -> int:
    number: int = _UINT64.unpack_from(data, at)[0]
    return number


def _decode_float(data: bytes, at: int) -> tuple[float, int]:
    number: float = _DOUBLE.unpack(_UINT64.pack(_unflip(_decode_uint(data, at))))[0]
    return number, at + 8


def _decode_date(data: bytes, at: int) -> tuple[datetime.date, int]:
    return datetime.date.fromordinal(int.from_bytes(data[at : at + 4], "big")), at + 4


def _decode_datetime(data: bytes, at: int) -> tuple[datetime.datetime, int]:
    return _YEAR_ONE + _decode_uint(data, at) * _MICROSECOND, at + 8


def _decode_time(data: bytes, at: int) -> tuple[datetime.time, int]:
    moment, end = _decode_datetime(data, at)
    return moment.time(), end


def _decode_offset_datetime(data: bytes, at: int) -> tuple[datetime.datetime, int]:
    offset = (_decode_uint(data, at + 8) - _BIAS) * _MICROSECOND
    local = _YEAR_ONE + ((_decode_uint(data, at) - _BIAS) * _MICROSECOND + offset)
    return local.replace(tzinfo=datetime.timezone(offset)), at + 16


def _decode_instant(data: bytes, at: int) -> tuple[Instant, int]:
    return Instant(_decode_uint(data, at) - _BIAS, _decode_uint(data, at + 8) - _BIAS), at + 16


def _decode_items(data: bytes, at: int) -> tuple[list[Any], int]:
    items = []
    while data[at] != _END:
        item, at = _decode(data, at)
        items.append(item)
    return items, at + 1


def _decode_tuple(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    items, end = _decode_items(data, at)
    return tuple(items), end


def _decode_dict(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
    items, end = _decode_items(data, at)
    return dict(zip(items[::2], items[1::2], strict=True)), end


def _decode_row(data: bytes, at: int) -> tuple[Row, int]:
    items, end = _decode_items(data, at + 1)
    return Row.of_kind(RowKind(data[at]), *items), end


def _decode_named_row(data: bytes, at: int) -> tuple[Row, int]:
    items, end = _decode_items(data, at + 1)
    row = Row.of_kind(RowKind(data[at]), *items[1::2])
    row.set_field_names(items[::2])
    return row, end


_DECODERS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    _NONE: lambda _, at: (None, at),
    _FALSE: lambda _, at: (False, at),
    _TRUE: lambda _, at: (True, at),
    _NEGATIVE_BIG: lambda data, at: _decode_big(data, at, negative=True),
    **{_ZERO + size: _int_decoder(size) for size in _INT_TAGS},
    _POSITIVE_BIG: lambda data, at: _decode_big(data, at, negative=False),
    _FLOAT: _decode_float,
    _STR: _decode_str,
    _BYTES: _terminated,
    _DECIMAL: _decode_decimal,
    _DATE: _decode_date,
    _TIME: _decode_time,
    _DATETIME: _decode_datetime,
    _OFFSET_DATETIME: _decode_offset_datetime,
    _INSTANT: _decode_instant,
    _TUPLE: _decode_tuple,
    _LIST: _decode_items,
    _DICT: _decode_dict,
    _ROW: _decode_row,
    _NAMED_ROW: _decode_named_row,
}
