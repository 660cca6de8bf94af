"""A plan as text, as JSON and as a Mermaid drawing."""

from __future__ import annotations

from typing import Any

from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Plan, Stage


def render_text(plan: Plan) -> str:
    """Return the plan as lines a person reads from top to bottom."""
    lines = [f"job {plan.job_name!r}: {len(plan.stages)} stages, {len(plan.channels)} channels"]
    for stage in plan.stages:
        lines += ["", f"stage {stage.id}  parallelism {stage.parallelism}"]
        lines += [f"  reads    {_input(stage, c)}" for c in stage.inputs]
        lines += _chain(stage, stage.head, depth=0)
        lines += [f"  writes   {_output(c)}" for c in stage.outputs]
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
                    {"name": n.name, "kind": n.kind.value, "uid": n.uid, "keyed": n.kind.is_keyed}
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
            }
            for c in plan.channels
        ],
    }


def render_mermaid(plan: Plan) -> str:
    """Return the plan as a Mermaid flowchart."""
    lines = ["flowchart LR"]
    for stage in plan.stages:
        label = stage.name.replace('"', "'")
        lines.append(f'  s{stage.id}["{label}<br/>x{stage.parallelism}"]')
    for c in plan.channels:
        how = f"{c.exchange.value}{_which(plan.stages[c.consumer], c)}"
        lines.append(f"  s{c.producer} -->|{how}| s{c.consumer}")
    return "\n".join(lines)


def _chain(stage: Stage, node: Node, depth: int) -> list[str]:
    mark = "runs     " if depth == 0 else "         "
    keyed = "  [keyed state]" if node.kind.is_keyed else ""
    lines = [f"  {mark}{'  ' * depth}{'-> ' if depth else ''}{node.name}{keyed}  (uid {node.uid})"]
    for follower in stage.followers(node):
        lines += _chain(stage, follower, depth + 1)
    return lines


def _input(stage: Stage, channel: Channel) -> str:
    how = f"{channel.exchange.value}{_which(stage, channel)}"
    return f"channel {channel.id} ({how}) from stage {channel.producer}"


def _which(stage: Stage, channel: Channel) -> str:
    return f", input {channel.input + 1}" if stage.head.kind.has_two_inputs else ""


def _output(channel: Channel) -> str:
    return f"channel {channel.id} ({channel.exchange.value}) to stage {channel.consumer}"
