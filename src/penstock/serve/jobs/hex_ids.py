"""Ids in the form that Flink's clients parse: 32 hexadecimal digits, derived from ours."""

from __future__ import annotations

import hashlib
import re

_HEX_ID = re.compile(r"[0-9a-f]{32}")


def hex_id(own: str) -> str:
    """Return the 32 digits for one of our ids: always the same, and itself if it has that form."""
    if _HEX_ID.fullmatch(own):
        return own
    return hashlib.blake2b(own.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_hex_id(text: str) -> bool:
    """Whether a text has this form."""
    return _HEX_ID.fullmatch(text) is not None
