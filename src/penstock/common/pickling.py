"""Pickling of user values, the same everywhere.

A class defined in the user's main program is known to workers by value only, where plain
pickle cannot name it; such values take cloudpickle's way, all others the fast one.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

__all__ = ["PROTOCOL", "dumps", "loads"]

PROTOCOL = 5


def dumps(value: Any) -> bytes:
    """Return the value as bytes, in a fixed pickle protocol."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        data: bytes = cloudpickle.dumps(value, PROTOCOL)
        return data


loads = pickle.loads
