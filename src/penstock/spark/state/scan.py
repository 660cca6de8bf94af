"""What every read of state has: a schema, and partitions that are read in tasks."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition

from penstock.checkpoint.storage.pins import Pin
from penstock.common.storage_url import Location
from penstock.errors import (
    CorruptStateError,
    DisappearedSnapshotError,
)
from penstock.snapshots.reading import open_pinned
from penstock.snapshots.stored_snapshot import METADATA, StoredSnapshot
from penstock.storage.storages import storage_at

KEPT_SECONDS = 600.0
"""How long a checkpoint stays after the driver has planned a read, or a task has read of it."""


class Scan(ABC):
    """What is read of a snapshot. It travels from process to process while Spark plans."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @abstractmethod
    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:
        """Return what tasks read, without what some filters exclude."""


class StatePartition(InputPartition, ABC):  # type: ignore[misc]
    """What one task reads."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows; called in a task."""


@dataclass(frozen=True)
class KeptSnapshot:
    """Names a snapshot and the pin on it, for all processes that read it."""

    directory: Location
    pin: str | None
    """The name of the pin in the directory of the job, None if there is none."""

    def renewed(self) -> Pin | None:
        """Renew the pin.

        It is not released: other tasks may not have begun yet. It expires.

        Raises:
            DisappearedSnapshotError: the snapshot was deleted, because the pin had expired.
        """
        pin = None
        if self.pin is not None:
            pin = Pin(storage_at(self.directory.parent), self.pin)
            with contextlib.suppress(OSError):
                pin.renew(KEPT_SECONDS)
        self.check()
        return pin

    def check(self) -> None:
        """Raise `DisappearedSnapshotError` if it was deleted."""
        if not storage_at(self.directory).exists(METADATA):
            raise DisappearedSnapshotError(str(self.directory))


def opened_snapshot(path: Location, checkpoint: int | None) -> tuple[StoredSnapshot, KeptSnapshot]:
    """Open a snapshot on the driver; it stays long enough for tasks to begin."""
    found = open_pinned(path, checkpoint, KEPT_SECONDS)
    snapshot = found.snapshot
    return snapshot, KeptSnapshot(snapshot.directory, found.pin.name if found.pin else None)


@contextmanager
def kept(snapshots: Sequence[KeptSnapshot]) -> Iterator[list[Pin]]:
    """Keep snapshots in a task for as long as the context lasts, if their pins are renewed in it.

    Raises:
        DisappearedSnapshotError: one was deleted.
    """
    pins = [snapshot.renewed() for snapshot in snapshots]
    try:
        yield [pin for pin in pins if pin is not None]
    except (CorruptStateError, FileNotFoundError):
        for snapshot in snapshots:
            with contextlib.suppress(OSError):
                snapshot.check()
        raise


def renewed(batches: Iterator[pa.RecordBatch], pins: Sequence[Pin]) -> Iterator[pa.RecordBatch]:
    """Iterate over batches, and renew pins meanwhile."""
    for batch in batches:
        for pin in pins:
            with contextlib.suppress(OSError):
                pin.renew(KEPT_SECONDS)
        yield batch
