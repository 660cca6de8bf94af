"""Stages and channels: where a job graph is cut, and what flows between the pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.common.typeinfo import TypeInformation
from penstock.graph.job_graph import Edge, JobGraph, Node
from penstock.graph.transformation import Exchange, OperatorKind, Partitioning
from penstock.ids import ChannelId, OperatorUid, StageId


@dataclass(frozen=True, slots=True)
class Channel:
    """An exchange between two stages: an ordered log of Arrow segments."""

    id: ChannelId
    producer: StageId
    consumer: StageId
    source_node: int
    partitioning: Partitioning
    consumer_parallelism: int
    max_parallelism: int
    input: int = 0
    """Which input of the consumer's head its records come to."""
    record_type: TypeInformation | None = None
    """The declared type of its records."""
    tag: str | None = None
    """The side output of its source that it takes, if not the main one."""
    has_time: bool = False
    """Whether its records have event time."""

    @property
    def exchange(self) -> Exchange:
        """How records are dealt out."""
        return self.partitioning.exchange


@dataclass(frozen=True, slots=True)
class Stage:
    """A chain of operators between two exchanges, run in one Python pass."""

    id: StageId
    nodes: tuple[Node, ...]
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]

    @property
    def head(self) -> Node:
        """The operator that gets the stage's input."""
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
        """Return the operators chained directly behind `node`."""
        return tuple(
            n
            for n in self.nodes
            if n.inputs and n.inputs[0].source == node.id and n is not self.head
        )

    def side_outputs(self, node: Node) -> tuple[str, ...]:
        """Return the ids of those side outputs of `node` that somebody takes."""
        chained = (f.inputs[0].tag for f in self.followers(node))
        tags = [tag.tag_id for tag in chained if tag is not None]
        tags += [c.tag for c in self.outputs if c.source_node == node.id and c.tag is not None]
        return tuple(dict.fromkeys(tags))

    def time_maker(self, node: Node, *, itself: bool) -> Node | None:
        """Return the step of the chain whose watermarks hold at `node`, None if it is outside.

        With `itself`, behind the node; else in front of it.
        """
        nodes = {n.id: n for n in self.nodes}
        while True:
            if itself and node.watermarks is not None:
                return node
            if node is self.head:
                return None
            node, itself = nodes[node.inputs[0].source], True

    def _chain_name(self, node: Node) -> str:
        behind = [f"{taken_from(n)}{self._chain_name(n)}" for n in self.followers(node)]
        if not behind:
            return node.name
        if len(behind) == 1:
            return f"{node.name} -> {behind[0]}"
        return f"{node.name} -> ({', '.join(behind)})"


def taken_from(follower: Node) -> str:
    """Spell the side output that a chained step takes; nothing for the main output."""
    tag = follower.inputs[0].tag
    return "" if tag is None else f"[{tag.tag_id}] "


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole job as stages and channels."""

    job_name: str
    stages: tuple[Stage, ...]
    channels: tuple[Channel, ...]


def plan_job(graph: JobGraph) -> Plan:
    """Cut the graph at every exchange that is not a plain forward."""
    nodes = {n.id: n for n in graph.nodes}
    stage_of: dict[int, int] = {}
    members: list[list[Node]] = []
    for node in graph.nodes:
        if _chains(node, nodes):
            stage = stage_of[node.inputs[0].source]
            members[stage].append(node)
        else:
            stage = len(members)
            members.append([node])
        stage_of[node.id] = stage

    cut = [e for n in graph.nodes for e in n.inputs if not _chains(n, nodes)]
    channels = tuple(
        Channel(
            id=ChannelId(i),
            producer=StageId(stage_of[e.source]),
            consumer=StageId(stage_of[e.target]),
            source_node=e.source,
            partitioning=_settle(e, nodes),
            consumer_parallelism=nodes[e.target].parallelism,
            max_parallelism=nodes[e.target].max_parallelism,
            input=e.input,
            record_type=nodes[e.source].output_type if e.tag is None else e.tag.type_info,
            tag=None if e.tag is None else e.tag.tag_id,
            has_time=nodes[e.source].has_time,
        )
        for i, e in enumerate(cut)
    )
    stages = tuple(
        Stage(
            id=StageId(i),
            nodes=tuple(group),
            inputs=tuple(c for c in channels if c.consumer == i),
            outputs=tuple(c for c in channels if c.producer == i),
        )
        for i, group in enumerate(members)
    )
    return Plan(graph.name, stages, channels)


def with_max_parallelism(plan: Plan, numbers: Mapping[OperatorUid, int]) -> Plan:
    """Return the plan with other numbers of key groups for some operators."""
    nodes = {
        n.id: replace(n, max_parallelism=numbers.get(n.uid, n.max_parallelism))
        for s in plan.stages
        for n in s.nodes
    }
    heads = {s.id: nodes[s.head.id] for s in plan.stages}
    channels = {
        c.id: replace(c, max_parallelism=heads[c.consumer].max_parallelism) for c in plan.channels
    }
    stages = tuple(
        Stage(
            s.id,
            tuple(nodes[n.id] for n in s.nodes),
            tuple(channels[c.id] for c in s.inputs),
            tuple(channels[c.id] for c in s.outputs),
        )
        for s in plan.stages
    )
    return Plan(plan.job_name, stages, tuple(channels.values()))


def _chains(node: Node, nodes: dict[int, Node]) -> bool:
    if len(node.inputs) != 1 or not node.may_chain or node.kind.begins_stage:
        return False
    source = nodes[node.inputs[0].source]
    if not source.may_be_followed:
        return False
    return _settle(node.inputs[0], nodes).exchange is Exchange.FORWARD and (
        source.parallelism == node.parallelism and not node.kind.is_keyed
    )


def _settle(edge: Edge, nodes: dict[int, Node]) -> Partitioning:
    if edge.partitioning.exchange is not Exchange.AUTO:
        return edge.partitioning
    same = nodes[edge.source].parallelism == nodes[edge.target].parallelism
    return Partitioning(Exchange.FORWARD if same else Exchange.REBALANCE)
