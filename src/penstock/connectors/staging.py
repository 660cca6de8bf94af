"""Bytes on their way from a task to the driver: inline when few, in a file when many."""

from __future__ import annotations

from pathlib import Path

import msgspec

from penstock.connectors.sink import WriterContext
from penstock.errors import LostStagedFileError

__all__ = ["load_staged", "stage_bytes"]

_LARGEST_INLINE = 60 * 1024


class _Inline(msgspec.Struct, frozen=True, tag="inline", array_like=True):
    data: bytes


class _InFile(msgspec.Struct, frozen=True, tag="file", array_like=True):
    path: str
    size: int


_decode = msgspec.msgpack.Decoder(_Inline | _InFile).decode


def stage_bytes(data: bytes, context: WriterContext) -> bytes:
    """Stage some bytes, and give the few that stand for them; none stand for none."""
    if not data:
        return b""
    if len(data) <= _LARGEST_INLINE:
        return msgspec.msgpack.encode(_Inline(data))
    path = context.staging_dir / context.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return msgspec.msgpack.encode(_InFile(str(path), len(data)))


def load_staged(staged: bytes) -> bytes:
    """Give back, on the driver, what a task staged."""
    if not staged:
        return b""
    entry = _decode(staged)
    if isinstance(entry, _Inline):
        return entry.data
    path = Path(entry.path)
    data = path.read_bytes() if path.exists() else b""
    if len(data) != entry.size:
        raise LostStagedFileError(entry.path, entry.size, len(data))
    return data
