"""The job vertices of a job, from the plan in its `job.json`: our stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint.storage.job_facts import JobFacts, PlannedInput, PlannedStep
from penstock.serve.jobs.hex_ids import hex_id


@dataclass(frozen=True, slots=True)
class Vertex:
    """A stage: a chain of operators."""

    stage: int
    name: str
    steps: tuple[PlannedStep, ...]
    """The operators of its chain, the head first."""

    @property
    def uid(self) -> str:
        """Our id: the uid of its head, which stays the same from run to run."""
        return self.steps[0].uid

    @property
    def id(self) -> str:
        """The id that Flink's clients parse."""
        return hex_id(self.uid)

    @property
    def parallelism(self) -> int:
        """How many subtasks it has."""
        return self.steps[0].parallelism

    @property
    def max_parallelism(self) -> int:
        """How many key groups it has; -1 if an older version did not write that down."""
        return self.steps[0].max_parallelism or -1

    @property
    def inputs(self) -> Iterator[PlannedInput]:
        """The edges that lead to it from other stages."""
        own = {step.uid for step in self.steps}
        return (i for step in self.steps for i in step.inputs if i.source not in own)

    def is_called(self, id_: str) -> bool:
        """Whether an id, Flink's or ours, is that of the vertex or of one of its operators."""
        return any(id_ in (step.uid, hex_id(step.uid)) for step in self.steps)


def vertices_of(facts: JobFacts | None) -> list[Vertex]:
    """Return the vertices of a job by stage; in files of older versions every operator is one."""
    if facts is None:
        return []
    stages: dict[int, list[PlannedStep]] = {}
    for index, step in enumerate(facts.plan):
        stages.setdefault(step.stage if step.stage >= 0 else index, []).append(step)
    names = dict(enumerate(facts.stages))
    return [
        Vertex(stage, names.get(stage) or " -> ".join(s.name for s in steps), tuple(steps))
        for stage, steps in sorted(stages.items())
    ]


def by_step(vertices: list[Vertex]) -> Mapping[str, Vertex]:
    """Return the vertex of every operator, by its uid."""
    return {step.uid: vertex for vertex in vertices for step in vertex.steps}
