"""Shipping a stage to its tasks, and saying who cannot travel."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cloudpickle

from penstock.common import pickling, pyflink_names
from penstock.datastream.async_functions import AsyncFunctionDescriptor
from penstock.datastream.functions import CheckpointedFunction, CheckpointListener, Function
from penstock.datastream.window.operation import WindowOperation
from penstock.errors import UnserializableFunctionError
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.task.subtask import StageTask


def ship(task: StageTask) -> bytes:
    """Return the stage as bytes, with an instance of its own for every step.

    Raises:
        UnserializableFunctionError: naming the step and the object it captured.
    """
    try:
        own = replace(task, stage=_with_own_functions(task.stage))
        # In this order: functions may need the names to be loaded at all.
        data: bytes = cloudpickle.dumps((pyflink_names.in_use(), own))
    except Exception as error:
        raise _explain(task, error) from None
    return data


def _with_own_functions(stage: Stage) -> Stage:
    """Copy a function object that is given to several steps: each opens and saves its own."""
    seen: set[int] = set()
    return replace(stage, nodes=tuple(_with_own_function(node, seen) for node in stage.nodes))


def _with_own_function(node: Node, seen: set[int]) -> Node:
    own = {id(f) for f in _users_functions(node.function) if isinstance(f, _HAVE_A_LIFE)}
    if own & seen:
        return replace(node, function=pickling.loads(cloudpickle.dumps(node.function)))
    seen |= own
    return node


_HAVE_A_LIFE = (Function, CheckpointedFunction, CheckpointListener)


def _users_functions(function: Any) -> list[Any]:
    """Return what the user gave, out of what a step made of it."""
    if isinstance(function, WindowOperation):
        return [function.window_function, function.folding]
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
            return deeper or (f"{name!r} = {_short(value)}", reason)
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
