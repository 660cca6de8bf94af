"""Paths of jobs whose directories are on this machine."""

from __future__ import annotations

from pathlib import Path

from penstock.common.storage_url import Location


def local(location: Location) -> Path:
    """Return the path of a location that is in no store."""
    assert isinstance(location, Path)
    return location
