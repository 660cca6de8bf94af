"""The compression of Avro's blocks, with what Python and Arrow bring along."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable

import pyarrow as pa

from penstock.errors import InvalidJobError

__all__ = ["CODECS", "compressor", "decompress"]

_RAW = -15


def _deflate(data: bytes) -> bytes:
    compress = zlib.compressobj(wbits=_RAW)
    return compress.compress(data) + compress.flush()


def _inflate(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=_RAW)


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "snappy", asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def _unsnappy(data: bytes) -> bytes:
    packed, checksum = data[:-4], data[-4:]
    plain: bytes = pa.decompress(packed, _length(packed), "snappy", asbytes=True)
    if zlib.crc32(plain).to_bytes(4, "big") != checksum:
        message = "its checksum is another"
        raise ValueError(message)
    return plain


def _length(packed: bytes) -> int:
    """Read how long a text compressed with snappy is, which it begins with."""
    length = shift = 0
    for byte in packed:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
    message = "it has no length"
    raise ValueError(message)


def _zstandard(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def _unzstandard(data: bytes) -> bytes:
    plain: bytes = pa.input_stream(pa.py_buffer(data), compression="zstd").read()
    return plain


def _itself(data: bytes) -> bytes:
    return data


CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "null": (_itself, _itself),
    "deflate": (_deflate, _inflate),
    "snappy": (_snappy, _unsnappy),
    "zstandard": (_zstandard, _unzstandard),
    "bzip2": (bz2.compress, bz2.decompress),
    "xz": (lzma.compress, lzma.decompress),
}


def compressor(codec: str) -> Callable[[bytes], bytes]:
    """Return what compresses a block; refuse a codec that is not known."""
    if codec not in CODECS:
        message = f"an Avro codec is one of {', '.join(CODECS)}; got {codec!r}"
        raise InvalidJobError(message)
    return CODECS[codec][0]


def decompress(codec: str, data: bytes) -> bytes:
    """Return a block as it was.

    Raises:
        ValueError: if it is not what such a codec gives, or there is no such codec.
    """
    if codec not in CODECS:
        message = f"its codec {codec!r} is none of {', '.join(CODECS)}"
        raise ValueError(message)
    try:
        return CODECS[codec][1](data)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, pa.ArrowException) as error:
        message = f"it is not {codec}: {error}"
        raise ValueError(message) from None
