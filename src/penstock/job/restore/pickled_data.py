"""Finds pickled data in a snapshot, which can run code when it is loaded.

A job loads what it finds in its own directories. Anything else is another user's, possibly: there
pickled data is rejected unless the user allows it. The keyed state of a checkpoint names its types
only inside its files; the tasks that restore it check them (`penstock.state.merge`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from penstock.channel.columns import RecordLayout
from penstock.channel.segment import decode_slice, read_slices
from penstock.checkpoint.barriers.channel_state_files import read_in_flight
from penstock.checkpoint.storage.job_dir import JobDir, resolved
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.checkpoint.storage.metadata import ChannelState, OperatorSnapshot, in_flight_file
from penstock.common.storage_url import Location, StorageUrl, names_below
from penstock.connectors.contracts.sink import Sink
from penstock.errors import PickledSnapshotError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Plan
from penstock.job.restore.snapshot_reader import Snapshot
from penstock.recovery.channel_matching import channel_endpoints
from penstock.state.operator.states import decode_lists
from penstock.types.signature import PICKLED


def is_in_own_directory(
    snapshot: Snapshot, job_dir: JobDir, savepoint_dir: Location | None, state: JournalState
) -> bool:
    """Whether a snapshot is in the job's directory or savepoint directory, or is its own savepoint.

    Savepoints may be written to any directory: the journal knows where the job has written one.
    """
    path = resolved(snapshot.path)
    own = [job_dir.path] if savepoint_dir is None else [job_dir.path, savepoint_dir]
    if any(names_below(resolved(directory), path) is not None for directory in own):
        return True
    return any(
        known.savepoint
        and known.metadata_crc == snapshot.crc
        and resolved(job_dir.from_journal_path(known.path)) == path
        for known in state.completed
    )


def reject_pickled(plan: Plan, snapshot: Snapshot) -> None:
    """Reject a snapshot if its metadata shows that the job would unpickle something.

    Raises:
        PickledSnapshotError: naming the operators and their states.
    """
    nodes = {node.uid: node for stage in plan.stages for node in stage.nodes}
    found = [
        f"{what} of {operator.name!r}"
        for operator in snapshot.metadata.operators
        if (node := nodes.get(operator.uid)) is not None  # type: ignore[call-overload]
        for what in _pickled_in(operator, node)
    ]
    ends = channel_endpoints(plan)
    for channel, in_flight in snapshot.in_flight.items():
        if _is_pickled(in_flight, ends[channel].consumer.uid, snapshot.path):
            found.append(f"in-flight data of {ends[channel].consumer.name!r}")
    if found:
        raise PickledSnapshotError(str(snapshot.path), tuple(sorted(set(found))))


def _pickled_in(operator: OperatorSnapshot, node: Node) -> Iterator[str]:
    for file in operator.savepoint:
        if PICKLED in file.type:
            yield f"state {file.state!r}"
    for version in operator.operator_state:
        for name, stored in decode_lists(version).items():
            if PICKLED in stored.type and stored.elements:
                yield f"operator state {name!r}"
    if operator.time.generators:
        yield "the watermark generator"
    sink, function = operator.sink, node.function
    has_output = sink is not None and (sink.committables or sink.state)
    if has_output and isinstance(function, Sink) and function.unpickles(node.input_type):
        yield "pending output"


def _is_pickled(state: ChannelState, consumer: str, snapshot: Location) -> bool:
    # With a declared type the consumer rejects pickled records itself.
    if PICKLED not in state.type:
        return False
    layouts = set(_layouts(state, consumer, snapshot))
    return not layouts.isdisjoint({RecordLayout.PICKLE, RecordLayout.TYPED})


def _layouts(state: ChannelState, consumer: str, snapshot: Location) -> Iterator[RecordLayout]:
    if isinstance(snapshot, StorageUrl):
        for segment, data in read_in_flight(snapshot, consumer, state):
            for part in chain(*segment.slices):
                content = data[part.offset : part.offset + part.length]
                yield decode_slice(pa.py_buffer(content)).layout
        return
    for segment in chain(*state.entries):
        path = snapshot / in_flight_file(consumer, state, segment)
        for slices in segment.slices:
            yield from (part.layout for part in read_slices(path, slices))
