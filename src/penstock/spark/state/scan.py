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
    NotASnapshotError,
)
from penstock.snapshots.reading import open_pinned
from penstock.snapshots.stored_snapshot import METADATA, StoredSnapshot
from penstock.storage.storages import storage_at

PLANNED_SECONDS = 600.0
"""How long a checkpoint stays after the driver has read it: until then tasks must have begun."""


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
class Pinned:
    """Names snapshots that a task reads, and keeps their files for as long as it does."""

    places: tuple[Location, ...]

    @contextmanager
    def kept(self) -> Iterator[list[Pin]]:
        """Pin the snapshots; yields the pins, which the reader renews.

        Raises:
            DisappearedSnapshotError: one was deleted.
        """
        pins = []
        with contextlib.ExitStack() as stack:
            for place in self.places:
                try:
                    found = open_pinned(place)
                except NotASnapshotError:
                    raise DisappearedSnapshotError(str(place)) from None
                stack.callback(found.release)
                if found.pin is not None:
                    pins.append(found.pin)
            with self._told_from_damage():
                yield pins

    @contextmanager
    def _told_from_damage(self) -> Iterator[None]:
        """Tell a checkpoint that was deleted meanwhile from one that is damaged."""
        try:
            yield
        except (CorruptStateError, FileNotFoundError):
            for place in self.places:
                with contextlib.suppress(OSError):
                    if not storage_at(place).exists(METADATA):
                        raise DisappearedSnapshotError(str(place)) from None
            raise


def renewed(batches: Iterator[pa.RecordBatch], pins: Sequence[Pin]) -> Iterator[pa.RecordBatch]:
    """Iterate over batches, and renew pins meanwhile."""
    for batch in batches:
        for pin in pins:
            pin.renew()
        yield batch


def opened_snapshot(path: Location, checkpoint: int | None) -> StoredSnapshot:
    """Open a snapshot on the driver; it stays long enough for tasks to begin."""
    return open_pinned(path, checkpoint, PLANNED_SECONDS).snapshot
