"""The functions of a subtask: their life cycle, their contexts and their operator state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.common.metric_values import StepMetrics
from penstock.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeySelector,
    MapFunction,
    Partitioner,
    ReduceFunction,
)
from penstock.datastream.window.operation import WindowOperation
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.state.keyed.states import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.state.operator.states import OperatorStates
from penstock.task.failure import calling
from penstock.task.messages import CheckpointNotification, SubtaskWork
from penstock.task.operators.contexts import (
    BroadcastStates,
    InitializationContext,
    SnapshotContext,
    SubtaskInfo,
    TaskRuntimeContext,
)
from penstock.task.time.watermark_generators import WatermarkGenerators

_METHODS: dict[type[Function], str] = {
    MapFunction: "map",
    FlatMapFunction: "flat_map",
    FilterFunction: "filter",
    KeySelector: "get_key",
    ReduceFunction: "reduce",
    Partitioner: "partition",
}


def callable_of(function: Any, kind: type[Function]) -> Callable[..., Any]:
    """Return the callable for a record: the method of a function class, or the function itself."""
    called: Callable[..., Any] = (
        getattr(function, _METHODS[kind]) if isinstance(function, kind) else function
    )
    return called


class OperatorFunctions:
    """All functions of a chain in one subtask, with their contexts and keyed state.

    They stay open while their worker runs the subtask's micro-batches one after the other.
    """

    def __init__(
        self, stage: Stage, subtask: int, attempt_number: int, parameters: Mapping[str, str]
    ) -> None:
        self.states: KeyedStates | None = None
        if stage.head.kind.is_keyed:
            codec = KeyCodec(stage.inputs[0].partitioning.key_type, stage.head.name)
            self.states = KeyedStates(stage.head.name, codec)
        self._functions: list[tuple[Node, Any]] = []
        self.contexts: dict[str, TaskRuntimeContext] = {}
        """By operator uid."""
        self._operator_states: dict[str, OperatorStates] = {}
        self.broadcast: BroadcastStates | None = None
        """The states of the head's broadcast side, if it has one; set by `start`."""
        self.generators = WatermarkGenerators()
        """User-defined watermark generators."""
        self._opened: dict[str, dict[str, tuple[Any, int]]] = {}
        self._is_open = False
        for node in stage.nodes:
            states = self.states if node is stage.head else None
            parallelisms = node.parallelism, node.max_parallelism
            info = SubtaskInfo(node.name, subtask, *parallelisms, attempt_number, parameters)
            self.contexts[node.uid] = TaskRuntimeContext(info, states)
            function = node.function
            if isinstance(function, WindowOperation):
                function = function.user_function
            if function is not None:
                self._functions.append((node, function))
        uids = {node.id: node.uid for node in stage.nodes}
        self._partitioning = [
            (self.contexts[uids[c.source_node]], step, function)
            for c in stage.outputs
            for step, function in (
                ("key_by", c.partitioning.key_selector),
                ("partition_custom", c.partitioning.partitioner),
            )
            if isinstance(function, Function)
        ]

    def start(self, work: SubtaskWork, notifications: Sequence[CheckpointNotification]) -> None:
        """Prepare the functions for a micro-batch: open new ones, then notify listeners.

        Called after the keyed state is bound to its store. A retried task notifies them again.
        """
        if not self._is_open:
            self._open(work.operator_state, work.restored)
            self._is_open = True
        self._notify(notifications)

    def _open(self, versions: Mapping[str, bytes], restored: bool) -> None:
        for node, function in self._functions:
            version = versions.get(node.uid, b"")
            if _is_checkpointed(node, function) or node.kind.has_broadcast_side:
                self._operator_states[node.uid] = states = OperatorStates(node.name, version)
            if node.kind.has_broadcast_side:
                self.broadcast = BroadcastStates(node.name, states, node.broadcast_states)
            if _is_checkpointed(node, function):
                initial = InitializationContext(states, restored or bool(version))
                with calling(node.name, "initialize_state()"):
                    function.initialize_state(initial)
            if isinstance(function, Function):
                with calling(node.name, "open()"):
                    function.open(self.contexts[node.uid])
                self._opened[node.uid] = _fields(function)
        for context, step, function in self._partitioning:
            with calling(step, "open()"):
                function.open(context)

    def _notify(self, notifications: Sequence[CheckpointNotification]) -> None:
        for notification in notifications:
            for node, function in self._functions:
                if not isinstance(function, CheckpointListener) or not _is_user_function(node):
                    continue
                method = f"notify_checkpoint_{notification.kind}"
                with calling(node.name, f"{method}()"):
                    getattr(function, method)(notification.checkpoint)

    def snapshot(self, checkpoint_id: int) -> dict[str, bytes]:
        """Snapshot the operator state of all functions, by operator uid.

        Called after the last record of every micro-batch.
        """
        versions = {}
        for node, function in self._functions:
            states = self._operator_states.get(node.uid)
            if states is None:
                continue
            with calling(node.name, "snapshot_state()"):
                if _is_checkpointed(node, function):
                    function.snapshot_state(SnapshotContext(checkpoint_id))
                versions[str(node.uid)] = states.encode()
        return versions

    def close(self) -> None:
        """Close every function object."""
        for node, function in self._functions:
            if isinstance(function, Function):
                with calling(node.name, "close()"):
                    function.close()
        for _, step, function in self._partitioning:
            with calling(step, "close()"):
                function.close()

    def take_counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of this micro-batch, by operator uid."""
        counted = {uid: c.get_metrics_group().take_counts() for uid, c in self.contexts.items()}
        return {uid: counts for uid, counts in counted.items() if counts}

    def take_metrics(self) -> dict[str, StepMetrics]:
        """Return the other metrics of this micro-batch, by operator uid."""
        measured = {}
        for uid, context in self.contexts.items():
            with calling(context.get_task_name(), "a gauge"):
                if figures := context.get_metrics_group().take_metrics():
                    measured[uid] = figures
        return measured

    def changed_fields(self) -> dict[str, list[str]]:
        """Return plain fields that functions changed since `open`: a restart would lose them."""
        changed: dict[str, list[str]] = {}
        for node, function in self._functions:
            before = self._opened.get(node.uid)
            # A CheckpointedFunction saves its fields itself.
            if before is None or _is_checkpointed(node, function):
                continue
            names = [
                n for n, seen in _fields(function).items() if not _is_same(before.get(n), seen)
            ]
            if names:
                changed[node.name] = names
        return changed


def _is_user_function(node: Node) -> bool:
    """Return whether a node runs a user function, and not a connector."""
    return node.kind not in (OperatorKind.SOURCE, OperatorKind.SINK)


def _is_checkpointed(node: Node, function: Any) -> bool:
    return isinstance(function, CheckpointedFunction) and _is_user_function(node)


def _fields(function: Function) -> dict[str, tuple[Any, int]]:
    """Return the value of each field, and its length if it is a collection."""
    fields = vars(function).items()
    return {n: (v, len(v) if isinstance(v, (list, dict, set)) else 0) for n, v in fields}


def _is_same(before: tuple[Any, int] | None, now: tuple[Any, int]) -> bool:
    return before is not None and before[0] is now[0] and before[1] == now[1]
