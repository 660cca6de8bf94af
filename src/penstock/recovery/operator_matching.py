"""Matches the operators of a job with those of a snapshot, by uid."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot
from penstock.errors import NonRestoredStateError, RestoreMismatchError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Plan, Stage, with_max_parallelism
from penstock.graph.transformation import OperatorKind
from penstock.ids import OperatorUid
from penstock.types.signature import PICKLED, type_signature


def match_operators(
    plan: Plan, metadata: CheckpointMetadata, path: str, *, allow_non_restored: bool
) -> Plan:
    """Check that a job can restore a snapshot; return the plan with the key groups it had.

    Raises:
        NonRestoredStateError: some state would not be restored.
        RestoreMismatchError: an operator has changed so that its state cannot be restored.
    """
    nodes = {n.uid: n for s in plan.stages for n in s.nodes}
    left = [
        f"{o.name!r} (uid {o.uid})"
        for o in metadata.operators
        if OperatorUid(o.uid) not in nodes and has_state(o)
    ]
    if left and not allow_non_restored:
        raise NonRestoredStateError(path, tuple(left))
    kept = {}
    for old in metadata.operators:
        node = nodes.get(OperatorUid(old.uid))
        if node is not None:
            for reason in mismatches(plan, node, old):
                raise RestoreMismatchError(node.name, path, reason)
            if is_keyed(old):
                kept[node.uid] = old.max_parallelism
    return with_max_parallelism(plan, kept)


def key_type_signature(stage: Stage) -> str:
    """Return the signature of a keyed stage's key type, as snapshots have it."""
    key_type = stage.inputs[0].partitioning.key_type
    return PICKLED if key_type is None else type_signature(key_type)


def is_keyed(operator: OperatorSnapshot) -> bool:
    """Whether a snapshot holds keyed state of an operator."""
    return bool(operator.keyed or operator.savepoint)


def has_state(operator: OperatorSnapshot) -> bool:
    """Whether something is lost if an operator of a snapshot is not restored."""
    sink = operator.sink
    return (
        is_keyed(operator)
        or bool(operator.operator_state)
        or operator.source is not None
        or (sink is not None and bool(sink.committables or sink.state))
    )


def mismatches(plan: Plan, node: Node, old: OperatorSnapshot) -> Iterator[str]:
    """Iterate over the reasons why an operator cannot take over the state of an old one."""
    if old.source is not None and node.kind is not OperatorKind.SOURCE:
        yield "it is a source there; give that uid() to the source"
    if old.sink is not None and has_state(old) and node.kind is not OperatorKind.SINK:
        yield "it is a sink there and has output to commit; give that uid() to the sink"
    if not is_keyed(old):
        return
    if not node.kind.is_keyed:
        yield "it has keyed state there, and no key here; put key_by() before it"
        return
    stage = next(s for s in plan.stages if s.head.uid == node.uid)
    key_type = key_type_signature(stage)
    if key_type != old.key_type:
        yield f"its keys were {old.key_type} and are {key_type} now; key types cannot change"
    if not node.derives_max_parallelism and node.max_parallelism != old.max_parallelism:
        yield (
            f"it had max parallelism {old.max_parallelism}, and {node.max_parallelism} is set "
            "now; it cannot change"
        )
    if node.parallelism > old.max_parallelism:
        yield (
            f"its parallelism {node.parallelism} is above the {old.max_parallelism} key groups "
            "it has; lower set_parallelism()"
        )
