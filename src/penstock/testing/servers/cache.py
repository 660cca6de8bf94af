"""Where fetched servers lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["servers_directory"]

_DIRECTORY = "PENSTOCK_SERVERS_DIR"


def servers_directory() -> Path:
    """Return the cache of fetched servers: `PENSTOCK_SERVERS_DIR`, or below the user's own."""
    named = os.environ.get(_DIRECTORY)
    return Path(named) if named else Path.home() / ".cache" / "penstock" / "servers"
