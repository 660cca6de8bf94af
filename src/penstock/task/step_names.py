"""Names of steps in errors, with the line of the program and the declared type of the input."""

from __future__ import annotations

from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.errors import TypeMismatchError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.types.coercion import coercion_for

_PASSING = (
    OperatorKind.FILTER,
    OperatorKind.KEYED_FILTER,
    OperatorKind.DECOUPLE,
    OperatorKind.ASSIGN_TIMESTAMPS,
)
"""Steps whose output is their input."""


class StepName(str):
    """The name of a step, for errors; it knows which step its input comes from.

    A chained record is not checked against its declared type: that would take time. It is checked
    when a step has failed on it, so that the error names the step that returned it.
    """

    call_site: str
    """The line of the program that created the step."""
    producer: StepName | None = None
    """The step that produced the input, if the two are chained."""
    input_type: TypeInformation | None = None

    def input_mismatch(self, record: Any) -> TypeMismatchError | None:
        """Return how a record of the input does not match its declared type, None if it does."""
        if self.producer is None or self.input_type is None:
            return None
        try:
            coercion_for(self.input_type)(record)
        except TypeMismatchError as mismatch:
            return mismatch
        return None


def step_name(stage: Stage, node: Node) -> StepName:
    """Return the name of a step of a stage, with the step that its input comes from."""
    name = _named(node)
    if node is not stage.head:
        nodes = {n.id: n for n in stage.nodes}
        name.producer = producer_name(stage, nodes[node.inputs[0].source])
        name.input_type = node.input_type
    return name


def producer_name(stage: Stage, node: Node) -> StepName:
    """Return the name of the step that produced the output of a step, which may pass records on."""
    nodes = {n.id: n for n in stage.nodes}
    while node.kind in _PASSING and node is not stage.head:
        node = nodes[node.inputs[0].source]
    return _named(node)


def _named(node: Node) -> StepName:
    name = StepName(node.name)
    name.call_site = node.call_site
    return name
