"""A stage as its tasks get it: serialized once on the driver, loaded once per worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from penstock.common import pickling
from penstock.common.pyflink import import_alias as pyflink_names
from penstock.datastream.async_functions import AsyncFunctionDescriptor
from penstock.datastream.functions import CheckpointedFunction, CheckpointListener, Function
from penstock.datastream.window.operation import WindowOperation
from penstock.errors import UnserializableFunctionError
from penstock.errors.base import short_repr
from penstock.graph.plan import Stage
from penstock.ids import ChannelId
from penstock.task.layout import AttemptLayout


@dataclass(frozen=True, slots=True)
class StageTask:
    """A stage and its settings as sent to every task; Flink's TaskInformation, not a task."""

    stage: Stage
    layout: AttemptLayout
    backend: str
    batch_mode: bool
    parameters: Mapping[str, str]
    internal_channels: frozenset[ChannelId] = frozenset()
    """The channels inside its pipelined region: Spark's shuffle carries their records."""
    rocksdb_metrics: tuple[str, ...] = ()
    """The properties of RocksDB that are metrics."""


def load_task(data: bytes) -> StageTask:
    """Deserialize what `dump_task` returned."""
    task: StageTask
    _, task = pickling.loads(data)
    return task


class StageTaskCache:
    """The stage that a worker loaded last, kept for its next micro-batch."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, str, int], StageTask] | None = None

    def __call__(self, key: tuple[str, str, int], load: Callable[[], bytes]) -> StageTask:
        """Return the stage with the key (job, attempt, stage), loaded unless it was the last."""
        if self._last is None or self._last[0] != key:
            self._last = key, load_task(load())
        return self._last[1]


def dump_task(task: StageTask) -> bytes:
    """Serialize a stage, giving each step a function instance of its own.

    Raises:
        UnserializableFunctionError: a function captured an object that cannot be pickled; names
            the step and the object.
    """
    try:
        own = replace(task, stage=_with_own_functions(task.stage))
        # The PyFlink import alias comes first: loading the functions may need it.
        data: bytes = cloudpickle.dumps((pyflink_names.installed_alias(), own))
    except Exception as error:
        raise _explain(task, error) from None
    return data


def _with_own_functions(stage: Stage) -> Stage:
    """Copy a function object that several steps use: each step opens and snapshots its own."""
    seen: set[int] = set()
    nodes = []
    for node in stage.nodes:
        own = {id(f) for f in _user_functions(node.function) if isinstance(f, _STATEFUL)}
        if own & seen:
            node = replace(node, function=pickling.loads(cloudpickle.dumps(node.function)))
        seen |= own
        nodes.append(node)
    return replace(stage, nodes=tuple(nodes))


_STATEFUL = (Function, CheckpointedFunction, CheckpointListener)


def _user_functions(function: Any) -> list[Any]:
    """Return the user's functions inside what a step holds."""
    if isinstance(function, WindowOperation):
        return [function.window_function, function.aggregating_function]
    if isinstance(function, AsyncFunctionDescriptor):
        return [function.async_function]
    return [function]


def _explain(task: StageTask, error: Exception) -> Exception:
    parts = [(n.name, n.function) for n in task.stage.nodes]
    parts += [("key_by", c.partitioning.key_selector) for c in task.stage.outputs]
    parts += [("partition_custom", c.partitioning.partitioner) for c in task.stage.outputs]
    for step, function in parts:
        reason = _reason(function)
        if reason is not None:
            captured, reason = _culprit(function) or ("itself", reason)
            return UnserializableFunctionError(step, captured, reason)
    return error


def _culprit(function: Any, depth: int = 0) -> tuple[str, str] | None:
    """Return the innermost captured object that cannot be pickled, and why."""
    for name, value in _captured(function):
        if type(value).__module__.split(".")[0] == "pyspark":
            kind = type(value).__name__
            return f"{name!r}, a {kind}", "it exists only in the driver"
        reason = _reason(value)
        if reason is not None:
            deeper = _culprit(value, depth + 1) if depth < 5 else None
            return deeper or (f"{name!r} = {short_repr(value)}", reason)
    return None


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    if inspect.isfunction(function):
        closure = inspect.getclosurevars(function)
        yield from closure.nonlocals.items()
        yield from ((n, v) for n, v in closure.globals.items() if not inspect.ismodule(v))
        yield from ((f"default {i}", v) for i, v in enumerate(function.__defaults__ or ()))
        return
    yield from getattr(function, "__dict__", {}).items()
    for kind in type(function).__mro__:
        if not kind.__module__.startswith(("penstock.", "builtins", "abc", "typing")):
            for method in filter(inspect.isfunction, vars(kind).values()):
                yield from _captured(method)
    if isinstance(function, dict):
        yield from ((str(k), v) for k, v in function.items())
    elif isinstance(function, (list, tuple, set)):
        yield from ((str(i), v) for i, v in enumerate(function))


def _reason(value: Any) -> str | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None
