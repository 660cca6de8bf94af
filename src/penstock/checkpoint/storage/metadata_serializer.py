r"""Encodes and decodes metadata files: magic, version, length, body, checksum.

    PENSTOCKCHK\0   u16 version   u64 length of body   body   u32 CRC-32 of all before it

Numbers are big-endian. Version 1 has a MessagePack body. Every version can be read for ever: a
new one gets its own decoder in `_DECODERS` and a golden file in the tests.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.checkpoint.storage.metadata import LINEAGE, CheckpointMetadata
from penstock.common.contained_paths import path_inside
from penstock.errors import CorruptMetadataError, UnsafeNameError

MAGIC = b"PENSTOCKCHK\0"
VERSION = 1
_HEAD = struct.Struct(f">{len(MAGIC)}sHQ")
_CRC = struct.Struct(">I")
_ANYWHERE = Path("/snapshot")


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
        metadata = _DECODERS[version](data[_HEAD.size : -_CRC.size])
    except msgspec.DecodeError as error:
        raise CorruptMetadataError(path, f"its content cannot be decoded: {error}") from None
    for name in _names(metadata):
        _check_name(name, path)
    return metadata


def _names(metadata: CheckpointMetadata) -> Iterator[str]:
    """Yield all names that become part of a path: each must lead into the directory it is for."""
    yield metadata.job_id
    yield metadata.attempt
    yield metadata.properties.get(LINEAGE, metadata.attempt)
    for operator in metadata.operators:
        files = [file for ref in operator.keyed for file in ref.files]
        yield from (name for file in files for name in {file.name, file.stored_name})
        yield from (file.path for file in operator.savepoint)
        entries = (entry for state in operator.in_flight for entry in state.entries)
        yield from (segment.name for entry in entries for segment in entry)
        if operator.source is not None and operator.source.files is not None:
            yield from (file.name for file in operator.source.files.files)
            # Files of a source may be next to the checkpoint, in the directory of its job.
            yield operator.source.files.directory.removeprefix("../").lstrip("/")


def _check_name(name: str, path: str) -> None:
    try:
        if name.startswith("/"):
            raise UnsafeNameError(name, path)
        path_inside(_ANYWHERE, name)
    except UnsafeNameError:
        reason = f"it names {name!r}, which leads out of its directory"
        raise CorruptMetadataError(path, reason) from None
