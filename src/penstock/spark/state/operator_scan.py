"""Reads operator state, source positions and pending committables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import Filter

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.snapshots.operator_state import (
    COMMITTABLES,
    POSITIONS,
    operator_state,
    pending_committables,
    source_positions,
)
from penstock.snapshots.stored_snapshot import open_snapshot
from penstock.spark.state.options import What
from penstock.spark.state.scan import KeptSnapshot, Scan, StatePartition
from penstock.spark.state.shapes import OperatorShape


@dataclass(frozen=True)
class OperatorStateScan(Scan):
    """One list or broadcast map of an operator."""

    kept: KeptSnapshot
    operator: OperatorSnapshot
    state: str
    may_unpickle: bool

    @cached_property
    def schema(self) -> pa.Schema:  # noqa: D102
        return OperatorShape(operator_state(self.operator, self.state), self.may_unpickle).schema

    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:  # noqa: D102
        uid = self.operator.uid
        return [_OperatorPartition(self.kept, What.STATE, uid, self.state, self.may_unpickle)]


@dataclass(frozen=True)
class OperatorFactsScan(Scan):
    """The positions of sources, or the pending committables of sinks."""

    kept: KeptSnapshot
    what: What
    operator: OperatorSnapshot | None
    """None for all operators."""

    @property
    def schema(self) -> pa.Schema:  # noqa: D102
        return POSITIONS if self.what is What.POSITIONS else COMMITTABLES

    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:  # noqa: D102
        uid = None if self.operator is None else self.operator.uid
        return [_OperatorPartition(self.kept, self.what, uid)]


@dataclass
class _OperatorPartition(StatePartition):
    """All of it: the task reads the metadata."""

    kept: KeptSnapshot
    what: What
    uid: str | None
    state: str = ""
    may_unpickle: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.kept.renewed()
        snapshot = open_snapshot(self.kept.directory)
        operators = None if self.uid is None else [snapshot.operator(self.uid)]
        if self.what is What.POSITIONS:
            table = source_positions(snapshot.metadata, operators)
        elif self.what is What.COMMITTABLES:
            table = pending_committables(snapshot.metadata, operators)
        else:
            assert operators is not None
            table = OperatorShape(
                operator_state(operators[0], self.state), self.may_unpickle
            ).table()
        yield from table.to_batches()
