"""Renders a plan as text, JSON or a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors.base import plural
from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Plan, Stage, resolved_partitioning, side_output_label
from penstock.graph.transformation import OperatorKind


def render_text(plan: Plan) -> str:
    """Return the plan as text."""
    stages, channels = plural(len(plan.stages), "stage"), plural(len(plan.channels), "channel")
    lines = [f"job {plan.job_name!r}: {stages}, {channels}"]
    for stage in plan.stages:
        lines += ["", f"stage {stage.id}  parallelism {stage.parallelism}"]
        for c in stage.inputs:
            lines.append(
                f"  reads    channel {c.id} ({_exchange(c, stage)}) from stage {c.producer}"
            )
        lines += _chain(stage, stage.head, depth=0)
        for c in stage.outputs:
            lines.append(f"  writes   channel {c.id} ({_exchange(c)}) to stage {c.consumer}")
    return "\n".join(lines)


def render_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "job": plan.job_name,
        "stages": [
            {
                "id": stage.id,
                "name": stage.name,
                "parallelism": stage.parallelism,
                "max_parallelism": stage.head.max_parallelism,
                "operators": [
                    {
                        "name": n.name,
                        "kind": n.kind.value,
                        "uid": n.uid,
                        "keyed": n.kind.is_keyed,
                        "side_outputs": list(stage.side_outputs(n)),
                        "description": n.description,
                    }
                    for n in stage.nodes
                ],
                "inputs": [c.id for c in stage.inputs],
                "outputs": [c.id for c in stage.outputs],
            }
            for stage in plan.stages
        ],
        "channels": [
            {
                "id": c.id,
                "from_stage": c.producer,
                "to_stage": c.consumer,
                "exchange": c.exchange.value,
                "input": c.input + 1,
                "side_output": c.tag,
            }
            for c in plan.channels
        ],
    }


def render_stream_graph(plan: Plan) -> dict[str, Any]:
    """Return the plan in the form of Flink's JSON plan, without None, True and False.

    As there, sinks come last, and a node that is no source has predecessors.
    """
    nodes = {n.id: n for stage in plan.stages for n in stage.nodes}
    in_order = sorted(nodes.values(), key=lambda n: (n.kind is OperatorKind.SINK, n.id))
    return {"nodes": [_stream_node(node, nodes) for node in in_order]}


def _stream_node(node: Node, nodes: Mapping[int, Node]) -> dict[str, Any]:
    pact = {OperatorKind.SOURCE: "Data Source", OperatorKind.SINK: "Data Sink"}
    rendered: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": pact.get(node.kind, "Operator"),
        "contents": node.description or node.name,
        "parallelism": node.parallelism,
    }
    if node.inputs:
        rendered["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": resolved_partitioning(edge, nodes).exchange.name,
                "side": "second" if edge.input else "first",
            }
            for edge in node.inputs
        ]
    return rendered


def render_mermaid(plan: Plan) -> str:
    """Return the plan as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for stage in plan.stages:
        label = _escape(stage.name)
        lines.append(f'  s{stage.id}["{label}<br/>x{stage.parallelism}"]')
    for c in plan.channels:
        exchange = _escape(_exchange(c, plan.stages[c.consumer]))
        arrow = "-->" if c.tag is None else "-.->"
        lines.append(f"  s{c.producer} {arrow}|{exchange}| s{c.consumer}")
    return "\n".join(lines)


def _chain(stage: Stage, node: Node, depth: int) -> list[str]:
    mark = "runs     " if depth == 0 else "         "
    arrow = f"-> {side_output_label(node)}" if depth else ""
    keyed = "  [keyed state]" if node.kind.is_keyed else ""
    lines = [f"  {mark}{'  ' * depth}{arrow}{node.name}{keyed}  (uid {node.uid})"]
    for follower in stage.followers(node):
        lines += _chain(stage, follower, depth + 1)
    return lines


def _exchange(channel: Channel, consumer: Stage | None = None) -> str:
    """Describe the exchange of a channel; for its consumer, with the input it leads to."""
    parts = [channel.exchange.value]
    if consumer is not None and consumer.head.kind.has_two_inputs:
        parts.append(f"input {channel.input + 1}")
    if channel.tag is not None:
        parts.append(f"side output {channel.tag}")
    return ", ".join(parts)


def _escape(text: str) -> str:
    """Return a label without the characters that Mermaid reads as markup."""
    return text.replace('"', "'").replace("|", "/")
