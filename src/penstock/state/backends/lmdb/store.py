"""A host's LMDB store of a published version."""

# ruff: noqa: D102  the contract documents these methods

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import lmdb

from penstock.state.backends.lmdb.environment import LmdbEnv
from penstock.state.backends.refs import FileRef, StateRef
from penstock.state.backends.store import StateStore
from penstock.state.backends.version_marker import VersionMarker, decode_version_marker
from penstock.state.delta import Block

# LMDB takes keys of up to 511 bytes. Longer ones are stored under 479 bytes of themselves and a
# digest of the whole, which makes exactly 511: a length no other stored key has.
_LONGEST = 511
_DIGEST = sha256().digest_size
_HEAD = _LONGEST - _DIGEST
_LENGTH = 4

_MARKER = b"stamp"

ReadFile = Callable[[FileRef], Iterator[Block]]


class HashMapStore(StateStore):
    """One version of the state, in a read transaction."""

    __slots__ = ("_env", "_get", "_private", "_txn", "version", "was_rebuilt")

    def __init__(
        self,
        env: LmdbEnv,
        txn: Any,
        version: int,
        private: Path | None = None,
        *,
        was_rebuilt: bool = False,
    ) -> None:
        self.version = version
        self.was_rebuilt = was_rebuilt
        self._env = env
        self._txn = txn
        self._get = txn.get
        self._private = private

    def get(self, key: bytes) -> bytes | None:
        if len(key) < _LONGEST:
            found: bytes | None = self._get(key)
            return found
        found = self._get(_stored_key(key))
        return None if found is None else _real(found)[1]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        short = len(max(keys, key=len, default=b"")) < _LONGEST
        return list(map(self._get if short else self.get, keys))

    def scan_between(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._from(start[:_HEAD]):
            if stop is not None and key >= stop:
                return
            if key >= start:
                yield key, value

    def close(self) -> None:
        if self._txn is None:
            return
        self._txn.abort()
        self._txn = None
        self._get = _closed
        self._env.close()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)

    def _from(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate in the order of the real keys; long keys are stored by head and digest."""
        cursor = self._txn.cursor()
        if not cursor.set_range(start):
            return
        run: list[tuple[bytes, bytes]] = []
        head = b""
        for key, value in cursor.iternext():
            if run and key[:_HEAD] != head:
                yield from sorted(run)
                run = []
            if len(key) <= _HEAD:
                yield key, value
                continue
            head = key[:_HEAD]
            run.append(_real(value) if len(key) == _LONGEST else (key, value))
        yield from sorted(run)


def read_version_marker(env: LmdbEnv, txn: Any) -> VersionMarker | None:
    """Return the version that a transaction sees, None in a new store."""
    data = txn.get(_MARKER, db=env.meta_db)
    return None if data is None else decode_version_marker(data)


def update_store(env: LmdbEnv, ref: StateRef, read: ReadFile) -> bool:
    """Bring a local store to a ref's version, in one transaction with its version marker.

    If the process is killed, either all or nothing of it has happened. Another process doing the
    same waits, then finds it done. A store that is ahead is left alone. Returns whether the store
    was rebuilt from all files of the version.
    """
    while True:
        try:
            with env.begin(write=True) as txn:
                rebuilt = _update(env, txn, ref, read)
        except lmdb.MapFullError:
            env.grow()
        else:
            return rebuilt


def _update(env: LmdbEnv, txn: Any, ref: StateRef, read: ReadFile) -> bool:
    marker = read_version_marker(env, txn)
    if marker is not None and (marker.is_at(ref) or marker.is_ahead_of(ref)):
        return False
    catches_up = marker is not None and marker.reaches(ref)
    if marker is not None and catches_up:
        missing = [delta for delta in ref.deltas if delta.version > marker.version]
    else:
        txn.drop(env.state_db, delete=False)
        missing = list(ref.deltas)
        if ref.base is not None:
            _load(txn, read(ref.base))
    for delta in missing:
        _apply(txn, read(delta))
    newest = ref.deltas[-1] if ref.deltas else ref.base
    marker = VersionMarker(ref.version, "" if newest is None else newest.name)
    txn.put(_MARKER, marker.encode(), db=env.meta_db)
    return bool(ref.files) and not catches_up


def _load(txn: Any, blocks: Iterable[Block]) -> None:
    """Fill an empty store with sorted blocks."""
    for block in blocks:
        entries = _stored(block)
        _, added = txn.cursor().putmulti(entries, append=True)
        if added != len(block.keys):
            txn.cursor().putmulti(_stored(block))


def _apply(txn: Any, blocks: Iterable[Block]) -> None:
    for block in blocks:
        txn.cursor().putmulti(_stored(block))
        for key in block.deletes:
            txn.delete(_stored_key(key))


def _stored(block: Block) -> Iterable[tuple[bytes, bytes]]:
    if max(map(len, block.keys), default=0) < _LONGEST:
        return zip(block.keys, block.values, strict=True)
    return [
        (_stored_key(key), value if len(key) < _LONGEST else _long_value(key, value))
        for key, value in zip(block.keys, block.values, strict=True)
    ]


def _stored_key(key: bytes) -> bytes:
    return key if len(key) < _LONGEST else key[:_HEAD] + sha256(key).digest()


def _long_value(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(_LENGTH, "big") + key + value


def _real(data: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    return data[_LENGTH:end], data[end:]


def _closed(_: bytes) -> bytes:
    message = "the store is closed"
    raise ValueError(message)
