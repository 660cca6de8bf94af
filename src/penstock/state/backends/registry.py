"""Backends by the name the configuration gives them."""

from __future__ import annotations

from penstock.state.backends.base import StateBackend
from penstock.state.backends.hashmap import HashMapBackend
from penstock.state.backends.memory import MemoryBackend
from penstock.state.backends.rocksdb import RocksDbBackend

__all__ = ["backend_named"]


def backend_named(name: str, step: str = "", incremental: bool = True) -> StateBackend:
    """Return the backend that `state.backend.type` names; `step` is for its messages.

    Unless `incremental`, what it folds shares no file with what was folded before.
    """
    if name == "memory":
        return MemoryBackend(step)
    if name == "rocksdb":
        return RocksDbBackend(incremental=incremental)
    return HashMapBackend(incremental=incremental)
