"""Reads what has changed in a keyed state from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import Filter

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.savepoint.tables import chunks, table_of
from penstock.snapshots.differences import Change, Section, changes_between, sections
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.state_parts import OpenPart, StatePart
from penstock.snapshots.stored_snapshot import StoredSnapshot, opened_part
from penstock.spark.state.scan import KeptSnapshot, Scan, StatePartition, kept, renewed
from penstock.spark.state.shapes import KeyedShape

_CHANGES_AT_ONCE = 1 << 14
_UPDATE, _DELETE = "update", "delete"


@dataclass(frozen=True)
class ChangeScan(Scan):
    """The changes between successive snapshots of one job."""

    snapshots: tuple[StoredSnapshot, ...]
    """In the order of their checkpoint ids."""
    kept: tuple[KeptSnapshot, ...]
    operators: tuple[OperatorSnapshot, ...]
    """The operator in each of them."""
    shape: KeyedShape

    @property
    def schema(self) -> pa.Schema:  # noqa: D102
        batch_id, change_type = (
            pa.field("batch_id", pa.int64()),
            pa.field("change_type", pa.string()),
        )
        return pa.schema([batch_id, change_type, *self.shape.schema])

    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:  # noqa: D102
        found: list[StatePartition] = []
        for number in range(1, len(self.snapshots)):
            old, new = self.snapshots[number - 1 : number + 1]
            before = old.parts(self.operators[number - 1])
            after = new.parts(self.operators[number])
            both = self.kept[number - 1 : number + 1]
            for one in both:
                one.renewed()
            checkpoint = new.metadata.checkpoint
            found += [
                ChangePartition(both, checkpoint, self.shape, self.schema, section)
                for section in sections(before, after)
            ]
        return found


@dataclass
class ChangePartition(StatePartition):
    """The changes of one checkpoint in a range of key groups."""

    snapshots: tuple[KeptSnapshot, ...]
    checkpoint: int
    shape: KeyedShape
    schema: pa.Schema
    section: Section

    def batches(self) -> Iterator[pa.RecordBatch]:  # noqa: D102
        before, after = self.section.before, self.section.after
        assert after is not None
        assert before is not None
        with (
            kept(self.snapshots) as pins,
            opened_part(before) as old,
            opened_part(after) as new,
        ):
            changes = changes_between(self._entries(old), self._entries(new))
            yield from renewed(self._rows(changes, after), pins)

    def _entries(self, part: OpenPart) -> Iterator[tuple[bytes, bytes]]:
        groups = self.section.key_groups
        start, stop = groups.start.to_bytes(2, "big"), groups.stop.to_bytes(2, "big")
        return part.entries(self.shape.state, start, stop)

    def _rows(self, changes: Iterator[Change], part: StatePart) -> Iterator[pa.RecordBatch]:
        updated: list[tuple[bytes, bytes]] = []
        deleted: list[tuple[bytes, bytes]] = []
        for change in changes:
            if change.after is not None:
                updated.append((change.key, change.after))
            else:
                assert change.before is not None
                deleted.append((change.key, change.before))
            if len(updated) + len(deleted) >= _CHANGES_AT_ONCE:
                yield from self._shaped(updated, deleted, part)
                updated, deleted = [], []
        yield from self._shaped(updated, deleted, part)

    def _shaped(
        self,
        updated: Sequence[tuple[bytes, bytes]],
        deleted: Sequence[tuple[bytes, bytes]],
        part: StatePart,
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.shape.batches(_tables(self.shape.state, updated), part.subtask):
            yield self._labelled(batch, _UPDATE)
        for table in _tables(self.shape.state, deleted):
            for one in table.to_batches():
                yield self._labelled(self.shape.deletions(one, part.subtask), _DELETE)

    def _labelled(self, batch: pa.RecordBatch, change: str) -> pa.RecordBatch:
        count = batch.num_rows
        numbers = pa.repeat(pa.scalar(self.checkpoint, pa.int64()), count)
        kinds = pa.repeat(pa.scalar(change, pa.string()), count)
        return pa.RecordBatch.from_arrays([numbers, kinds, *batch.columns], schema=self.schema)


def _tables(state: KeyedState, entries: Sequence[tuple[bytes, bytes]]) -> Iterator[pa.Table]:
    for _, keys, values in chunks(entries):
        yield table_of(state.schema, state.columns, state.info.windows, keys, values)
