"""Telling records that cannot change from those that can.

What a function emits may be held and changed by it afterwards; whatever keeps records for
later must therefore keep a copy of those that can change.
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
    """Say whether `value`, with all it contains, is known to be unable to change."""
    kind = type(value)
    if kind is tuple:
        return all(type(item) in _ATOMS or is_frozen(item) for item in value)
    return kind in _ATOMS
