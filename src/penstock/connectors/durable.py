"""Making names durable: a file's directory entry needs a sync of its own."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory"]


def sync_directory(directory: Path) -> None:
    """Make files created in or renamed into a directory survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
