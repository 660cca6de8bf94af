"""What a job is, as `job.json` describes it to tools that do not have its program.

These structs are a file format: field names are persisted, and new fields have defaults.
"""

from __future__ import annotations

import msgspec

from penstock.graph.job_graph import Edge, Node
from penstock.graph.plan import Plan, resolved_partitioning


class PlannedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge of the plan: where an operator's records come from."""

    source: str
    """The uid of the upstream operator."""
    exchange: str
    """How its records are distributed: a value of `Exchange`."""
    input: int = 1
    """The input of the operator, counted from 1."""
    side_output: str | None = None
    """The side output of the upstream that is read, None for its main output."""
    channel: int | None = None
    """The channel that carries the records; None inside a stage."""


class PlannedStep(msgspec.Struct, frozen=True):
    """One operator of a job, and the edges that lead to it."""

    uid: str
    name: str
    parallelism: int = 1
    kind: str = ""
    """A value of `OperatorKind`; empty in files of older versions."""
    stage: int = -1
    """The stage whose chain it is in; -1 in files of older versions."""
    max_parallelism: int = 0
    description: str = ""
    inputs: list[PlannedInput] = []


class JobFacts(msgspec.Struct, frozen=True):
    """What a job is; written by every attempt before it starts."""

    name: str
    created: float
    program: str | None = None
    args: list[str] = []
    plan: list[PlannedStep] = []
    stages: list[str] = []
    """The names of the stages by id: their chains in Flink's notation."""
    settings: dict[str, str] = {}
    """The job's configuration, without credentials and without how stores are reached."""
    mode: str = "STREAMING"
    """STREAMING or BATCH."""
    supervised: bool = False
    """Whether a supervisor starts the driver again if it dies."""
    versions: dict[str, str] = {}
    """Of penstock, Python and the machine's architecture, by name."""


def with_plan(facts: JobFacts, plan: Plan) -> JobFacts:
    """Return what a job is, with its plan."""
    stages = [stage.name for stage in plan.stages]
    return msgspec.structs.replace(facts, plan=planned_steps(plan), stages=stages)


def planned_steps(plan: Plan) -> list[PlannedStep]:
    """Return the operators of a plan with their edges, in topological order."""
    nodes = {node.id: node for stage in plan.stages for node in stage.nodes}
    stages = {node.id: stage for stage in plan.stages for node in stage.nodes}

    def planned(node: Node, edge: Edge) -> PlannedInput:
        tag = None if edge.tag is None else edge.tag.tag_id
        incoming = stages[node.id].inputs if node is stages[node.id].head else ()
        same = (edge.source, edge.input, tag)
        return PlannedInput(
            source=nodes[edge.source].uid,
            exchange=resolved_partitioning(edge, nodes).exchange.value,
            input=edge.input + 1,
            side_output=tag,
            channel=next((c.id for c in incoming if (c.source_node, c.input, c.tag) == same), None),
        )

    return [
        PlannedStep(
            uid=node.uid,
            name=node.name,
            parallelism=node.parallelism,
            kind=node.kind.value,
            stage=stages[node.id].id,
            max_parallelism=node.max_parallelism,
            description=node.description or "",
            inputs=[planned(node, edge) for edge in node.inputs],
        )
        for _, node in sorted(nodes.items())
    ]
