"""Matches the in-flight data of a snapshot with the channels of a job: only the same channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checkpoint.storage.metadata import ChannelState, CheckpointMetadata
from penstock.errors import RestoreMismatchError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Plan
from penstock.ids import ChannelId, OperatorUid
from penstock.types.signature import PICKLED, type_signature

_WAY_OUT = "take a savepoint with the unchanged job, which has no in-flight data, and restore that"


@dataclass(frozen=True, slots=True)
class ChannelEndpoints:
    """A channel as snapshots identify it: by the operators at its ends."""

    channel: Channel
    producer: Node
    consumer: Node
    ordinal: int
    """Its number among the channels between the same operators, to the same input."""

    @property
    def type(self) -> str:
        """The signature of its record type, as snapshots have it."""
        declared = self.channel.record_type
        return PICKLED if declared is None else type_signature(declared)

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies it as the same channel in another attempt."""
        return self.consumer.uid, self.producer.uid, self.channel.input, self.ordinal


def channel_endpoints(plan: Plan) -> dict[ChannelId, ChannelEndpoints]:
    """Return all channels of a plan with the operators at their ends."""
    nodes = {n.id: n for s in plan.stages for n in s.nodes}
    numbers: Counter[tuple[int, int, int]] = Counter()
    ends = {}
    for channel in plan.channels:
        producer = nodes[channel.source_node]
        consumer = plan.stages[channel.consumer].head
        pair = producer.id, consumer.id, channel.input
        ends[channel.id] = ChannelEndpoints(channel, producer, consumer, numbers[pair])
        numbers[pair] += 1
    return ends


def match_channels(
    plan: Plan, metadata: CheckpointMetadata, path: str, *, allow_non_restored: bool
) -> dict[ChannelId, ChannelState]:
    """Find the channels into which in-flight data is restored.

    Raises:
        RestoreMismatchError: there is no such channel in this job.
    """
    ends = {end.key: end for end in channel_endpoints(plan).values()}
    uids = {n.uid for s in plan.stages for n in s.nodes}
    found = {}
    for operator in metadata.operators:
        if OperatorUid(operator.uid) not in uids and allow_non_restored:
            continue
        for state in operator.in_flight:
            end = ends.get((operator.uid, state.producer, state.input, state.ordinal))
            for reason in _mismatches(end, state):
                raise RestoreMismatchError(operator.name, path, f"{reason}; {_WAY_OUT}")
            assert end is not None
            found[end.channel.id] = state
    return found


def _mismatches(end: ChannelEndpoints | None, state: ChannelState) -> Iterator[str]:
    if end is None:
        yield (
            f"records were in flight to its input {state.input + 1} from the step with uid "
            f"{state.producer}, and no channel connects the two here"
        )
        return
    name = end.producer.name
    if end.consumer.parallelism != state.parallelism:
        yield (
            f"records were in flight to it from {name!r}, for {state.parallelism} "
            f"subtasks, and it has {end.consumer.parallelism} now"
        )
    if end.channel.exchange.value != state.exchange:
        yield (
            f"records were in flight to it from {name!r} by {state.exchange}, and the exchange "
            f"is {end.channel.exchange.value} now"
        )
    if end.channel.tag != state.tag:
        yield (
            f"records were in flight to it from {_output(name, state.tag)}, and that channel "
            f"comes from {_output(name, end.channel.tag)} now"
        )
    if end.type != state.type:
        yield (
            f"records were in flight to it from {name!r} as {state.type}, and the declared type "
            f"is {end.type} now"
        )


def _output(name: str, tag: str | None) -> str:
    return f"the main output of {name!r}" if tag is None else f"side output {tag!r} of {name!r}"
