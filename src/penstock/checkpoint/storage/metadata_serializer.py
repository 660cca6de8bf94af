r"""Encodes and decodes metadata files: magic, version, length, body, checksum.

    PENSTOCKCHK\0   u16 version   u64 length of body   body   u32 CRC-32 of all before it

Numbers are big-endian. Version 1 has a MessagePack body. Every version can be read for ever: a
new one gets its own decoder in `_DECODERS` and a golden file in the tests.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping

import msgspec

from penstock.checkpoint.storage.metadata import CheckpointMetadata
from penstock.errors import CorruptMetadataError

MAGIC = b"PENSTOCKCHK\0"
VERSION = 1
_HEAD = struct.Struct(f">{len(MAGIC)}sHQ")
_CRC = struct.Struct(">I")


def _decode_version_1(body: bytes) -> CheckpointMetadata:
    return msgspec.msgpack.decode(body, type=CheckpointMetadata)


_DECODERS: Mapping[int, Callable[[bytes], CheckpointMetadata]] = {1: _decode_version_1}

KNOWN_VERSIONS = tuple(_DECODERS)
"""The versions this penstock can read."""


def encode_metadata(meta: CheckpointMetadata) -> bytes:
    """Return the content of a metadata file, in the newest version."""
    body = msgspec.msgpack.encode(meta)
    data = _HEAD.pack(MAGIC, VERSION, len(body)) + body
    return data + _CRC.pack(zlib.crc32(data))


def decode_metadata(data: bytes, path: str) -> CheckpointMetadata:
    """Return the metadata in a file's content; `path` is only for error messages.

    Raises:
        CorruptMetadataError: if it is not exactly what was written, or of an unknown version.
    """
    if not data.startswith(MAGIC):
        is_short = MAGIC.startswith(data)
        raise CorruptMetadataError(
            path, "it is truncated" if is_short else "it is not a metadata file"
        )
    if len(data) < _HEAD.size + _CRC.size:
        raise CorruptMetadataError(path, "it is truncated")
    _, version, length = _HEAD.unpack_from(data)
    if version not in _DECODERS:
        known = ", ".join(map(str, KNOWN_VERSIONS))
        reason = f"it has format version {version}, but this penstock reads {known}"
        raise CorruptMetadataError(path, reason)
    wanted = _HEAD.size + length + _CRC.size
    if len(data) < wanted:
        raise CorruptMetadataError(path, f"it is truncated: {len(data)} of {wanted} bytes")
    if len(data) > wanted:
        raise CorruptMetadataError(path, f"{len(data) - wanted} bytes follow its end")
    if _CRC.unpack_from(data, wanted - _CRC.size)[0] != zlib.crc32(data[: -_CRC.size]):
        raise CorruptMetadataError(path, "its checksum is wrong")
    try:
        return _DECODERS[version](data[_HEAD.size : -_CRC.size])
    except msgspec.DecodeError as error:
        raise CorruptMetadataError(path, f"its content cannot be decoded: {error}") from None
