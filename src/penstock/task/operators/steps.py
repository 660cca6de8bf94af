"""The steps of a chain: each is a function that processes one record and calls the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.datastream.functions import FilterFunction, FlatMapFunction, MapFunction
from penstock.datastream.output_tag import is_tagged
from penstock.graph.job_graph import Node
from penstock.graph.transformation import OperatorKind
from penstock.task.failure import (
    copy_if_mutable,
    fail,
    fail_unknown_side_output,
    not_iterable,
)
from penstock.task.operators.functions import callable_of

Push = Callable[[Any], None]
"""Processes one record."""


def map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by one other."""

    def push(record: Any) -> None:
        try:
            result = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        out(result)

    return push


def co_map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by one other, or by none if the result is None."""

    def push(record: Any) -> None:
        try:
            result = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        if result is not None:
            out(result)

    return push


def filter_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that lets some records through."""

    def push(record: Any) -> None:
        try:
            keep = function(record)
        except (Exception, SystemExit) as error:
            fail(step, record, error)
        if keep:
            out(record)

    return push


def flat_map_step(step: str, function: Callable[[Any], Any], out: Push) -> Push:
    """Return a step that replaces each record by any number of others."""

    def push(record: Any) -> None:
        results = None
        try:
            results = function(record)
            if results is not None:
                for result in results:
                    out(result)
        except (Exception, SystemExit) as error:
            fail(step, record, not_iterable(error, results))

    return push


def function_step(node: Node, step: str, out: Push) -> Push:
    """Return the step of a map, filter or flat map function, with or without keys."""
    match node.kind:
        case OperatorKind.MAP | OperatorKind.KEYED_MAP:
            return map_step(step, callable_of(node.function, MapFunction), out)
        case OperatorKind.FILTER | OperatorKind.KEYED_FILTER:
            return filter_step(step, callable_of(node.function, FilterFunction), out)
        case OperatorKind.FLAT_MAP | OperatorKind.KEYED_FLAT_MAP:
            return flat_map_step(step, callable_of(node.function, FlatMapFunction), out)
    message = f"{node.kind} cannot be inside a chain"
    raise AssertionError(message)


def two_steps(node: Node, out: Push, context: Any) -> tuple[Push, Push]:
    """Return the steps for the two inputs of an operator."""
    step, function = node.name, node.function
    if node.kind in (OperatorKind.CO_MAP, OperatorKind.KEYED_CO_MAP):
        return co_map_step(step, function.map1, out), co_map_step(step, function.map2, out)
    if node.kind in (OperatorKind.CO_FLAT_MAP, OperatorKind.KEYED_CO_FLAT_MAP):
        first, second = function.flat_map1, function.flat_map2
    else:
        process1, process2 = function.process_element1, function.process_element2
        first, second = (lambda r: process1(r, context)), (lambda r: process2(r, context))
    return flat_map_step(step, first, out), flat_map_step(step, second, out)


def split_by_tag(step: str, main: Push, sides: Mapping[str, Push]) -> Push:
    """Return a step that sends (tag, record) to side outputs and all else to the main output."""

    def push(record: Any) -> None:
        if is_tagged(record):
            if len(record) != 2:
                count = len(record) - 1
                message = f"a side output takes (tag, record); got a tag and {count} values"
                fail(step, record, TypeError(message))
            side = sides.get(record[0].tag_id)
            if side is None:
                fail_unknown_side_output(step, record, sides)
            side(record[1])
        else:
            main(record)

    return push


def fan_out(step: str, outs: list[Push]) -> Push:
    """Return a step that sends every record to several others."""
    if len(outs) == 1:
        return outs[0]
    if not outs:
        return lambda _: None
    *others, last = outs

    def push(record: Any) -> None:
        # Branches must not see each other's changes to a record.
        for out in others:
            out(copy_if_mutable(step, record))
        last(record)

    return push
