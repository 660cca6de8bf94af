"""The directory of fetched servers on this machine."""

from __future__ import annotations

import os
from pathlib import Path

_DIRECTORY = "PENSTOCK_SERVERS_DIR"


def servers_directory() -> Path:
    """Return the cache of fetched servers: `PENSTOCK_SERVERS_DIR`, or in the user's cache."""
    named = os.environ.get(_DIRECTORY)
    return Path(named) if named else Path.home() / ".cache" / "penstock" / "servers"
