"""Backends by the name the configuration gives them."""

from __future__ import annotations

from penstock.state.backends.base import StateBackend
from penstock.state.backends.hashmap import HashMapBackend
from penstock.state.backends.memory import MemoryBackend

__all__ = ["backend_named"]


def backend_named(name: str, step: str = "") -> StateBackend:
    """Return the backend that `state.backend.type` names; `step` is for its messages."""
    return MemoryBackend(step) if name == "memory" else HashMapBackend()
