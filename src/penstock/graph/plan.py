"""The plan of a job: stages of chained operators, and the channels between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.graph.job_graph import Edge, JobGraph, Node
from penstock.graph.transformation import Exchange, OperatorKind, Partitioning
from penstock.ids import ChannelId, OperatorUid, StageId


@dataclass(frozen=True, slots=True)
class Channel:
    """All records that one stage sends to another, in one ordered log.

    Flink has a channel for each pair of subtasks; here there is one for each pair of stages.
    """

    id: ChannelId
    producer: StageId
    consumer: StageId
    source_node: int
    partitioning: Partitioning
    consumer_parallelism: int
    max_parallelism: int
    input: int = 0
    """The input of the consumer's head that its records belong to."""
    record_type: TypeInformation | None = None
    """The declared type of its records."""
    tag: str | None = None
    """The side output of its source that it reads, None for the main output."""
    has_time: bool = False
    """Whether its records have event time."""

    @property
    def exchange(self) -> Exchange:
        """How records are distributed."""
        return self.partitioning.exchange


@dataclass(frozen=True, slots=True)
class Stage:
    """A chain of operators between two exchanges: Flink's job vertex, not a stage of Spark."""

    id: StageId
    nodes: tuple[Node, ...]
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]

    @property
    def head(self) -> Node:
        """The operator that reads the stage's input."""
        return self.nodes[0]

    @property
    def parallelism(self) -> int:
        """How many subtasks the stage has."""
        return self.head.parallelism

    @property
    def name(self) -> str:
        """The chain's operators, in Flink's notation."""
        return self._chain_name(self.head)

    @property
    def is_source(self) -> bool:
        """Whether the stage reads an external source."""
        return self.head.kind is OperatorKind.SOURCE

    def followers(self, node: Node) -> tuple[Node, ...]:
        """Return the operators chained directly after `node`."""
        return tuple(
            n
            for n in self.nodes
            if n.inputs and n.inputs[0].source == node.id and n is not self.head
        )

    def side_outputs(self, node: Node) -> tuple[str, ...]:
        """Return the ids of the side outputs of `node` that are read."""
        chained = (f.inputs[0].tag for f in self.followers(node))
        tags = [tag.tag_id for tag in chained if tag is not None]
        tags += [c.tag for c in self.outputs if c.source_node == node.id and c.tag is not None]
        return tuple(dict.fromkeys(tags))

    def watermark_step(self, node: Node, *, itself: bool) -> Node | None:
        """Return the step of the chain that generates the watermarks at `node`, if one does.

        With `itself`, those after the node; else those before it.
        """
        nodes = {n.id: n for n in self.nodes}
        while True:
            if itself and node.watermarks is not None:
                return node
            if node is self.head:
                return None
            node, itself = nodes[node.inputs[0].source], True

    def _chain_name(self, node: Node) -> str:
        chained = [f"{side_output_label(n)}{self._chain_name(n)}" for n in self.followers(node)]
        if not chained:
            return node.name
        if len(chained) == 1:
            return f"{node.name} -> {chained[0]}"
        return f"{node.name} -> ({', '.join(chained)})"


def side_output_label(follower: Node) -> str:
    """Return a label for the side output that a chained step reads; empty for the main output."""
    tag = follower.inputs[0].tag
    return "" if tag is None else f"[{tag.tag_id}] "


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole job as stages and channels."""

    job_name: str
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]


def plan_job(graph: JobGraph) -> Plan:
    """Build the plan: chain operators into stages, and put channels at all other exchanges."""
    nodes = {n.id: n for n in graph.nodes}
    stage_of: dict[int, int] = {}
    chains: list[list[Node]] = []
    for node in graph.nodes:
        if _chains(node, nodes):
            stage = stage_of[node.inputs[0].source]
            chains[stage].append(node)
        else:
            stage = len(chains)
            chains.append([node])
        stage_of[node.id] = stage

    exchanges = [e for n in graph.nodes for e in n.inputs if not _chains(n, nodes)]
    channels = tuple(
        Channel(
            id=ChannelId(i),
            producer=StageId(stage_of[e.source]),
            consumer=StageId(stage_of[e.target]),
            source_node=e.source,
            partitioning=resolved_partitioning(e, nodes),
            consumer_parallelism=nodes[e.target].parallelism,
            max_parallelism=nodes[e.target].max_parallelism,
            input=e.input,
            record_type=nodes[e.source].output_type if e.tag is None else e.tag.type_info,
            tag=None if e.tag is None else e.tag.tag_id,
            has_time=nodes[e.source].has_time,
        )
        for i, e in enumerate(exchanges)
    )
    stages = tuple(
        Stage(
            id=StageId(i),
            nodes=tuple(_with_splits(chain)),
            inputs=tuple(c for c in channels if c.consumer == i),
            outputs=tuple(c for c in channels if c.producer == i),
        )
        for i, chain in enumerate(chains)
    )
    return Plan(graph.name, stages, channels)


def _with_splits(chain: Sequence[Node]) -> Iterator[Node]:
    """Make a source name the splits of its records where a step of its chain needs them.

    Watermarks are generated per split, wherever in the chain.
    """
    head, *others = chain
    is_timed = head.kind is OperatorKind.SOURCE and any(node.watermarks for node in others)
    yield replace(head, function=head.function.with_timestamps()) if is_timed else head
    yield from others


def with_max_parallelism(plan: Plan, numbers: Mapping[OperatorUid, int]) -> Plan:
    """Return the plan with another max parallelism for some operators."""
    return _changed(
        plan, lambda n: replace(n, max_parallelism=numbers.get(n.uid, n.max_parallelism))
    )


def with_job_settings(plan: Plan, settings: InputSettings) -> Plan:
    """Return the plan with the settings of the job in its sources and sinks."""

    def change(node: Node) -> Node:
        if node.kind is OperatorKind.SOURCE:
            return replace(node, function=node.function.with_settings(settings))
        if node.kind is OperatorKind.SINK:
            options = settings.storage_options
            return replace(node, function=node.function.with_storage_options(options))
        return node

    return _changed(plan, change)


def _changed(plan: Plan, change: Callable[[Node], Node]) -> Plan:
    # Sorted by id, as they are in the job graph.
    nodes = sorted((n for s in plan.stages for n in s.nodes), key=lambda n: n.id)
    return plan_job(JobGraph(plan.job_name, tuple(map(change, nodes))))


def _chains(node: Node, nodes: dict[int, Node]) -> bool:
    if len(node.inputs) != 1 or not node.may_chain or node.kind.begins_stage:
        return False
    source = nodes[node.inputs[0].source]
    if not source.may_be_followed:
        return False
    return resolved_partitioning(node.inputs[0], nodes).exchange is Exchange.FORWARD and (
        source.parallelism == node.parallelism and not node.kind.is_keyed
    )


def resolved_partitioning(edge: Edge, nodes: Mapping[int, Node]) -> Partitioning:
    """Return how records are distributed on an edge, AUTO resolved."""
    if edge.partitioning.exchange is not Exchange.AUTO:
        return edge.partitioning
    same = nodes[edge.source].parallelism == nodes[edge.target].parallelism
    return Partitioning(Exchange.FORWARD if same else Exchange.REBALANCE)
