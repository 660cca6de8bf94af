"""The live functions of a subtask: unpickled, opened, and kept while their worker keeps up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.common.metric_figures import StepFigures
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
from penstock.graph.plan import Channel, Stage
from penstock.graph.transformation import OperatorKind
from penstock.state.keyed import KeyedStates
from penstock.state.keys import KeyCodec
from penstock.state.operator_state import OperatorStates
from penstock.task.context import (
    BroadcastStates,
    InitializationContext,
    SnapshotContext,
    SubtaskFacts,
    TaskRuntimeContext,
)
from penstock.task.failure import calling
from penstock.task.generators import Generators
from penstock.task.messages import Notice, NoticeKind

_METHODS: dict[type[Function], str] = {
    MapFunction: "map",
    FlatMapFunction: "flat_map",
    FilterFunction: "filter",
    KeySelector: "get_key",
    ReduceFunction: "reduce",
    Partitioner: "partition",
}


def callable_of(function: Any, kind: type[Function]) -> Callable[..., Any]:
    """Return what to call for a record: the method of such a function, or the callable itself."""
    called: Callable[..., Any] = (
        getattr(function, _METHODS[kind]) if isinstance(function, kind) else function
    )
    return called


class Operators:
    """All functions of a chain in one subtask, with their contexts and keyed state."""

    def __init__(self, stage: Stage, facts: Callable[[Node], SubtaskFacts]) -> None:
        self.states: KeyedStates | None = None
        if stage.head.kind.is_keyed:
            codec = KeyCodec(stage.inputs[0].partitioning.key_type, stage.head.name)
            self.states = KeyedStates(stage.head.name, codec)
        self._functions: list[tuple[Node, Any]] = []
        self._contexts: dict[str, TaskRuntimeContext] = {}
        self._operator_states: dict[str, OperatorStates] = {}
        self.broadcast: BroadcastStates | None = None
        """What the broadcast side of the first operator keeps, if it has one; since `open`."""
        self.generators = Generators()
        """Watermark generators of the user's own."""
        self._opened: dict[str, dict[str, tuple[Any, int]]] = {}
        for node in stage.nodes:
            states = self.states if node is stage.head else None
            self._contexts[node.uid] = TaskRuntimeContext(facts(node), states)
            function = node.function
            if isinstance(function, WindowOperation):
                function = function.user_function
            if function is not None:
                self._functions.append((node, function))
        self._dealers = [
            (c, step, function)
            for c in stage.outputs
            for step, function in (
                ("key_by", c.partitioning.key_selector),
                ("partition_custom", c.partitioning.partitioner),
            )
            if isinstance(function, Function)
        ]
        self._nodes = {n.id: n for n in stage.nodes}

    def open(self, versions: Mapping[str, bytes], restored: bool) -> None:
        """Bring every function object to life, as a task does with instances it did not keep.

        `versions` is the operator state to start from, by operator uid; an operator without one
        starts empty. Called after the keyed state is bound to its store.
        """
        for node, function in self._functions:
            version = versions.get(node.uid, b"")
            if _saves_itself(node, function) or node.kind.has_broadcast_side:
                self._operator_states[node.uid] = states = OperatorStates(node.name, version)
            if node.kind.has_broadcast_side:
                self.broadcast = BroadcastStates(node.name, states, node.broadcast_states)
            if _saves_itself(node, function):
                context = InitializationContext(states, restored or bool(version))
                with calling(node.name, "initialize_state()"):
                    function.initialize_state(context)
            if isinstance(function, Function):
                with calling(node.name, "open()"):
                    function.open(self._contexts[node.uid])
                self._opened[node.uid] = _seen(function)
        for channel, step, dealer in self._dealers:
            with calling(step, "open()"):
                dealer.open(self._contexts_of(channel))

    def notify(self, notices: Sequence[Notice]) -> None:
        """Tell every function that listens what became of checkpoints; a retry tells it again."""
        for notice in notices:
            for node, function in self._functions:
                if not isinstance(function, CheckpointListener) or not _is_users(node):
                    continue
                if notice.kind is NoticeKind.COMPLETE:
                    with calling(node.name, "notify_checkpoint_complete()"):
                        function.notify_checkpoint_complete(notice.checkpoint)
                else:
                    with calling(node.name, "notify_checkpoint_aborted()"):
                        function.notify_checkpoint_aborted(notice.checkpoint)

    def snapshot(self, checkpoint_id: int) -> dict[str, bytes]:
        """Return the operator state of every function that has some, by operator uid.

        Called behind the last record of every micro-batch.
        """
        versions = {}
        for node, function in self._functions:
            states = self._operator_states.get(node.uid)
            if states is None:
                continue
            with calling(node.name, "snapshot_state()"):
                if _saves_itself(node, function):
                    function.snapshot_state(SnapshotContext(checkpoint_id))
                versions[str(node.uid)] = states.encode()
        return versions

    def close(self) -> None:
        """Close every function object."""
        for node, function in self._functions:
            if isinstance(function, Function):
                with calling(node.name, "close()"):
                    function.close()
        for _, step, dealer in self._dealers:
            with calling(step, "close()"):
                dealer.close()

    def take_counters(self) -> dict[str, dict[str, int]]:
        """Return what functions counted in this micro-batch, by operator uid."""
        counted = {uid: c.get_metrics_group().take_counts() for uid, c in self._contexts.items()}
        return {uid: counts for uid, counts in counted.items() if counts}

    def take_figures(self) -> dict[str, StepFigures]:
        """Return what else functions measured in this micro-batch, by operator uid."""
        measured = {}
        for uid, context in self._contexts.items():
            with calling(context.get_task_name(), "a gauge"):
                if figures := context.get_metrics_group().take_figures():
                    measured[uid] = figures
        return measured

    def changed_fields(self) -> dict[str, list[str]]:
        """Return plain fields that functions changed since `open`: they will not survive."""
        changed: dict[str, list[str]] = {}
        for node, function in self._functions:
            before = self._opened.get(node.uid)
            # What a checkpointed function keeps in its fields is its own to save.
            if before is None or _saves_itself(node, function):
                continue
            names = [n for n, seen in _seen(function).items() if not _is_same(before.get(n), seen)]
            if names:
                changed[node.name] = names
        return changed

    def context_of(self, node: Node) -> TaskRuntimeContext:
        """Return the context of an operator."""
        return self._contexts[node.uid]

    def _contexts_of(self, channel: Channel) -> TaskRuntimeContext:
        return self._contexts[self._nodes[channel.source_node].uid]


def _is_users(node: Node) -> bool:
    """Tell a user's function from a connector, which has its own way to take part."""
    return node.kind not in (OperatorKind.SOURCE, OperatorKind.SINK)


def _saves_itself(node: Node, function: Any) -> bool:
    return isinstance(function, CheckpointedFunction) and _is_users(node)


def _seen(function: Function) -> dict[str, tuple[Any, int]]:
    """Return what each field holds, and how long it is if it is a collection."""
    fields = vars(function).items()
    return {n: (v, len(v) if isinstance(v, (list, dict, set)) else 0) for n, v in fields}


def _is_same(before: tuple[Any, int] | None, now: tuple[Any, int]) -> bool:
    return before is not None and before[0] is now[0] and before[1] == now[1]
