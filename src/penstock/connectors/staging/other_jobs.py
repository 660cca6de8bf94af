"""Finds what a sink of another job has stored, in a directory or in a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.common.config.locations import STORE_SCHEMES, parse_location, scheme_of
from penstock.common.contained_paths import counterpart
from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import UnsafeNameError


def counterpart_place(
    own: Location, name: str, levels: int, options: Mapping[str, str]
) -> Location:
    """Return the place that a snapshot names and that is to another job what ``own`` is to this.

    It has the same last names, this many. The options are for reaching a store, if ``own`` is in
    none.

    Raises:
        UnsafeNameError: it has other names.
    """
    names = own.parts[-levels:]
    if scheme_of(name) not in STORE_SCHEMES:
        return counterpart(Path(*names), name, levels)
    try:
        place = parse_location(name, own.options if isinstance(own, StorageUrl) else options)
    except ValueError:
        place = own / "no place"
    if place.parts[-levels:] != names:
        raise UnsafeNameError(name, "/".join(("*", *names)))
    return place
