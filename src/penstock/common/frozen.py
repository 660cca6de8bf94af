"""Tells immutable records from mutable ones.

A function may change a record after it was emitted; code that keeps records must therefore copy
mutable ones.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

__all__ = ["is_frozen"]

_ATOMS = frozenset(
    {
        str,
        int,
        float,
        bool,
        bytes,
        type(None),
        complex,
        decimal.Decimal,
        datetime.date,
        datetime.time,
        datetime.datetime,
        datetime.timedelta,
    }
)


def is_frozen(value: Any) -> bool:
    """Tell whether `value`, with all it contains, is known to be immutable."""
    kind = type(value)
    if kind is tuple:
        return all(type(item) in _ATOMS or is_frozen(item) for item in value)
    return kind in _ATOMS
