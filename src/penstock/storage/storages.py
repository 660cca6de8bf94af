"""Opens the storage of a location; the only place that knows all kinds of storages."""

from __future__ import annotations

from pathlib import Path

from penstock.common.config.locations import HDFS
from penstock.common.storage_url import Location
from penstock.storage.contract import Storage
from penstock.storage.local_storage import LocalStorage


def storage_at(location: Location) -> Storage:
    """Return the storage with this root; cheap, nothing is read and nothing is created.

    Raises:
        RuntimeSetupError: the optional library for this kind of store is not installed.
        StorageSettingsError: the settings of the store cannot be used.
    """
    if isinstance(location, Path):
        return LocalStorage(location)
    if location.scheme == HDFS:
        from penstock.storage.hdfs_storage import HdfsStorage

        return HdfsStorage(location)
    from penstock.storage.object_storage import ObjectStorage

    return ObjectStorage(location)
