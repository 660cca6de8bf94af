"""The format `penstock.state-metadata` of `spark.read`: the operators and states of a snapshot.

It has the columns of Spark's `state-metadata` and of Flink's `savepoint_metadata`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import Filter

from penstock.checkpoint.storage.job_dir import JobDir, is_job
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.ids import JobKey
from penstock.snapshots.keyed_state import KeyedState
from penstock.snapshots.operator_state import OperatorState, operator_states
from penstock.snapshots.reading import reading
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.spark.state.options import METADATA_OPTIONS, parse_options
from penstock.spark.state.scan import Scan, StatePartition
from penstock.spark.state.source import ScannedSource

METADATA_FORMAT = "penstock.state-metadata"

_SCHEMA = pa.schema(
    [
        pa.field("operatorId", pa.int64()),
        pa.field("operatorName", pa.string()),
        pa.field("stateStoreName", pa.string()),
        pa.field("numPartitions", pa.int32()),
        pa.field("minBatchId", pa.int64()),
        pa.field("maxBatchId", pa.int64()),
        pa.field("operatorProperties", pa.string()),
        pa.field("checkpoint-id", pa.int64()),
        pa.field("operator-name", pa.string()),
        pa.field("operator-uid", pa.string()),
        pa.field("operator-uid-hash", pa.string()),
        pa.field("operator-parallelism", pa.int32()),
        pa.field("operator-max-parallelism", pa.int32()),
        pa.field("operator-subtask-state-count", pa.int32()),
        pa.field("operator-coordinator-state-size-in-bytes", pa.int64()),
        pa.field("operator-total-size-in-bytes", pa.int64()),
        pa.field("stateKind", pa.string()),
        pa.field("stateType", pa.string()),
        pa.field("keyType", pa.string()),
        pa.field("ttlMs", pa.int64()),
    ]
)


class StateMetadataSource(ScannedSource):
    """A row for each state of each operator in a snapshot; operators without state have one row."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return METADATA_FORMAT

    def scan(self) -> Scan:
        """Return what the options name."""
        options = parse_options(self._given, METADATA_OPTIONS)
        with reading(options.path, options.checkpoint) as found:
            return MetadataScan(tuple(_rows(found.snapshot)))


@dataclass(frozen=True)
class MetadataScan(Scan):
    """Rows that the driver has read."""

    rows: tuple[dict[str, Any], ...]

    @property
    def schema(self) -> pa.Schema:  # noqa: D102
        return _SCHEMA

    def partitions(self, filters: Sequence[Filter]) -> list[StatePartition]:  # noqa: D102
        return [_Rows(self.rows)]


@dataclass
class _Rows(StatePartition):
    rows: tuple[dict[str, Any], ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(list(self.rows), schema=_SCHEMA)


def _rows(snapshot: StoredSnapshot) -> Iterator[dict[str, Any]]:
    first, last = _retained(snapshot)
    for number, operator in enumerate(snapshot.metadata.operators):
        common = {
            "operatorId": number,
            "operatorName": operator.name,
            "numPartitions": operator.parallelism,
            "minBatchId": first,
            "maxBatchId": last,
            "checkpoint-id": snapshot.metadata.checkpoint,
            "operator-name": operator.name,
            "operator-uid": operator.uid,
            "operator-uid-hash": hashlib.blake2b(
                operator.uid.encode("utf-8", "surrogatepass"), digest_size=16
            ).hexdigest(),
            "operator-parallelism": operator.parallelism,
            "operator-max-parallelism": operator.max_parallelism,
            "operator-subtask-state-count": _subtasks_with_state(operator),
            "operator-coordinator-state-size-in-bytes": _coordinator_bytes(operator),
            "operator-total-size-in-bytes": _total_bytes(operator),
        }
        keyed = snapshot.keyed_states(operator) if operator.keyed or operator.savepoint else []
        states = [*map(_of_keyed, keyed), *map(_of_operator, operator_states(operator))]
        for state in states or [_properties({"kind": operator.kind})]:
            yield {**common, **state}


def _of_keyed(state: KeyedState) -> dict[str, Any]:
    ttl = None if state.info.ttl is None else state.info.ttl.millis
    facts = {
        "kind": state.kind,
        "type": state.info.type,
        "keyType": state.key_type,
        "windows": state.info.windows,
        "ttlMs": ttl,
    }
    return {
        "stateStoreName": state.name,
        "stateKind": state.kind,
        "stateType": state.info.type,
        "keyType": state.key_type or None,
        "ttlMs": ttl,
        **_properties(facts),
    }


def _of_operator(state: OperatorState) -> dict[str, Any]:
    kind = (
        "broadcast state" if state.is_broadcast else f"operator list state ({state.distribution})"
    )
    return {
        "stateStoreName": state.name,
        "stateKind": kind,
        "stateType": state.type,
        **_properties({"kind": kind, "type": state.type}),
    }


def _properties(facts: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    return {"operatorProperties": msgspec.json.encode(known).decode()}


def _retained(snapshot: StoredSnapshot) -> tuple[int, int]:
    """Return the first and last checkpoint of the job; that of the snapshot if there is no job."""
    own = snapshot.metadata.checkpoint
    place = snapshot.directory.parent
    job = JobDir(place.parent, JobKey(place.name))
    if snapshot.is_savepoint or not is_job(job):
        return own, own
    known = [entry.checkpoint for entry in Journal(job.storage, job.key).state().completed]
    return min([own, *known]), max([own, *known])


def _subtasks_with_state(operator: OperatorSnapshot) -> int:
    subtasks = {n for n, ref in enumerate(operator.keyed) if ref.files or ref.inline}
    subtasks |= {file.subtask for file in operator.savepoint if file.rows}
    subtasks |= {n for n, version in enumerate(operator.operator_state) if version}
    return len(subtasks)


def _coordinator_bytes(operator: OperatorSnapshot) -> int:
    return 0 if operator.source is None else len(operator.source.enumerator_state)


def _total_bytes(operator: OperatorSnapshot) -> int:
    keyed = sum(file.size for ref in operator.keyed for file in ref.files)
    inline = sum(len(ref.inline or b"") for ref in operator.keyed)
    saved = sum(file.size for file in operator.savepoint)
    return (
        keyed
        + inline
        + saved
        + sum(map(len, operator.operator_state))
        + _coordinator_bytes(operator)
    )
