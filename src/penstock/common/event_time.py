"""The special values of event time."""

from __future__ import annotations

__all__ = ["MAX_WATERMARK", "MIN_WATERMARK", "NO_TIMESTAMP"]

NO_TIMESTAMP = -(2**63)
"""The timestamp of a record that has none."""

MIN_WATERMARK = -(2**63)
"""The watermark before the first one."""

MAX_WATERMARK = 2**63 - 1
"""The last watermark, at the end of all input."""
