"""Reads the settings of stores from a configuration: `penstock.storage.<scheme>.<name>`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.configuration import Configuration


def storage_options(configuration: Configuration) -> dict[str, str]:
    """Return the settings of all stores, as a `StorageUrl` carries them.

    They travel with it to tasks, and may hold credentials: they are never written down.
    """
    keys = sorted(k for k in configuration.key_set() if k.startswith(STORAGE_PREFIX))
    values = ((key, configuration.get(key)) for key in keys)
    return {key.removeprefix(STORAGE_PREFIX): str(value) for key, value in values}


def options_of(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one kind of store, by the name that its client uses."""
    prefix = f"{scheme}."
    return {
        key.removeprefix(prefix).replace("-", "_"): value
        for key, value in options.items()
        if key.startswith(prefix)
    }
