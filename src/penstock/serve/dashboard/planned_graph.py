"""The stages of a job and the exchanges between them, from the plan in `job.json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.checkpoint.storage.job_facts import PlannedStep

_SOURCE = "source"


class ShownStage(msgspec.Struct, frozen=True):
    """One stage: operators that run in the same tasks."""

    stage: int
    name: str
    uids: list[str]
    parallelism: int
    max_parallelism: int
    is_source: bool


class ShownEdge(msgspec.Struct, frozen=True):
    """One exchange between two stages."""

    from_stage: int = msgspec.field(name="from")
    to_stage: int = msgspec.field(name="to")
    input: int
    """The input of the downstream operator, counted from 1."""
    exchange: str
    channel: int | None
    """The id of the channel that carries its records."""


class ShownGraph(msgspec.Struct, frozen=True):
    """The graph of a job; empty if an older version wrote `job.json`."""

    stages: list[ShownStage] = []
    edges: list[ShownEdge] = []


def shown_graph(steps: Sequence[PlannedStep]) -> ShownGraph:
    """Return the graph of these operators, which are in topological order."""
    known = [step for step in steps if step.stage >= 0]
    stage_of = {step.uid: step.stage for step in known}
    by_stage: dict[int, list[PlannedStep]] = {}
    for step in known:
        by_stage.setdefault(step.stage, []).append(step)
    return ShownGraph(
        [_stage(stage, chain) for stage, chain in sorted(by_stage.items())],
        [
            ShownEdge(stage_of[edge.source], step.stage, edge.input, edge.exchange, edge.channel)
            for step in known
            for edge in step.inputs
            if edge.source in stage_of and stage_of[edge.source] != step.stage
        ],
    )


def _stage(stage: int, chain: Sequence[PlannedStep]) -> ShownStage:
    return ShownStage(
        stage,
        " -> ".join(step.name for step in chain),
        [step.uid for step in chain],
        chain[0].parallelism,
        chain[0].max_parallelism,
        any(step.kind == _SOURCE for step in chain),
    )
