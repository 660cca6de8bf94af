"""Pickles user values.

Plain pickle cannot name a class of the user's main program, which workers do not import; such
values are pickled by cloudpickle, all others by the faster pickle.
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
