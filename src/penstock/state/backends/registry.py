"""Creates state backends by their configured name."""

from __future__ import annotations

from penstock.state.backends.base import StateBackend
from penstock.state.backends.lmdb.backend import HashMapBackend
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.rocksdb.backend import RocksDbBackend


def create_state_backend(name: str, step: str = "", incremental: bool = True) -> StateBackend:
    """Return the backend that `state.backend.type` names; `step` is for its error messages.

    Unless `incremental`, a compaction shares no file with an earlier one.
    """
    if name == "memory":
        return MemoryBackend(step)
    if name == "rocksdb":
        return RocksDbBackend(incremental=incremental)
    return HashMapBackend(incremental=incremental)
