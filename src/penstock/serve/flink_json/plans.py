"""The plan of a job in Flink's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.jobs.vertices import Vertex, by_step, vertices_of


def plan_of(job: JobView) -> dict[str, Any]:
    """Return the plan with its vertices and the edges between them."""
    vertices = vertices_of(job.facts)
    owners = by_step(vertices)
    return {
        "jid": hex_id(job.overview.id),
        "name": job.overview.name,
        "type": job_type(job),
        "nodes": [_node(vertex, owners) for vertex in vertices],
    }


def stream_graph_of(job: JobView) -> dict[str, Any]:
    """Return the operators and the edges between them."""
    steps = [] if job.facts is None else job.facts.plan
    owners = by_step(vertices_of(job.facts))
    return {
        "nodes": [
            {
                "id": step.uid,
                "parallelism": step.parallelism,
                "operator": step.kind,
                "description": step.description or step.name,
                "job_vertex_id": owners[step.uid].id,
                "inputs": [
                    {
                        "num": number,
                        "id": edge.source,
                        "ship_strategy": edge.exchange.upper(),
                        "exchange": "PIPELINED",
                    }
                    for number, edge in enumerate(step.inputs)
                ],
            }
            for step in steps
        ]
    }


def job_type(job: JobView) -> str:
    """Return STREAMING or BATCH."""
    return "STREAMING" if job.facts is None else job.facts.mode


def _node(vertex: Vertex, owners: Mapping[str, Vertex]) -> dict[str, Any]:
    return {
        "id": vertex.id,
        "operator": "",
        "parallelism": vertex.parallelism,
        "operator_strategy": "",
        "description": vertex.name,
        "optimizer_properties": {},
        "inputs": [
            {
                "num": number,
                "id": owners[edge.source].id,
                "ship_strategy": edge.exchange.upper(),
                "local_strategy": "",
                "caching": "",
                "exchange": "pipelined_bounded",
                "penstock-channel": edge.channel,
                "penstock-side-output": edge.side_output,
            }
            for number, edge in enumerate(vertex.inputs)
            if edge.source in owners
        ],
        "penstock-stage": vertex.stage,
        "penstock-operators": [
            {
                "uid": step.uid,
                "id": hex_id(step.uid),
                "name": step.name,
                "kind": step.kind,
                "description": step.description,
            }
            for step in vertex.steps
        ],
    }
