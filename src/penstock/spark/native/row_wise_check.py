"""Checks that a Spark plan processes a stream row by row, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from penstock.errors import InvalidJobError

_KEYED = "use key_by() with reduce(), a window or a KeyedProcessFunction instead"
_ELSEWHERE = "do it after the job, on the output of a sink"

_REFUSED = {
    "Aggregate": ("aggregates rows or removes duplicates", _KEYED),
    "Deduplicate": ("removes duplicates", _KEYED),
    "Window": ("has a window over rows", _KEYED),
    "Sort": ("sorts rows", f"a stream has no end; {_ELSEWHERE}"),
    "GlobalLimit": ("takes the first rows", "count them in a KeyedProcessFunction instead"),
    "LocalLimit": ("takes the first rows", "count them in a KeyedProcessFunction instead"),
    "Tail": ("takes the last rows", "keep them in a KeyedProcessFunction's state instead"),
    "Offset": ("skips the first rows", "count them in a KeyedProcessFunction instead"),
    "Sample": ("draws a sample of all rows", "use where('rand() < 0.1') instead"),
    "Repartition": ("moves rows", "use rebalance() or key_by() on the stream instead"),
    "RepartitionByExpression": ("moves rows", "use key_by() on the stream instead"),
    "RebalancePartitions": ("moves rows", "use rebalance() on the stream instead"),
    "Union": ("combines rows of two DataFrames", "use union() of streams instead"),
    "EventTimeWatermark": (
        "has a watermark",
        "use assign_timestamps_and_watermarks() on the stream instead",
    ),
    "MapInArrow": ("calls a function on whole batches", "use process_batch() or map() instead"),
    "MapInPandas": ("calls a function on whole batches", "use process_batch() or map() instead"),
}

_ROW_WISE = frozenset({"Project", "Filter", "Generate", "BatchEvalPython", "ArrowEvalPython"})

_JOINS_OF_A_LEFT_STREAM = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin")
_JOINS_OF_A_RIGHT_STREAM = ("Inner", "Cross", "RightOuter")

_NARROW = frozenset(
    {
        "WholeStageCodegenExec",
        "InputAdapter",
        "ColumnarToRowExec",
        "ProjectExec",
        "FilterExec",
        "GenerateExec",
        "BatchEvalPythonExec",
        "ArrowEvalPythonExec",
        "BroadcastHashJoinExec",
        "BroadcastNestedLoopJoinExec",
        "MapInArrowExec",
    }
)
"""Operators that keep every row in its partition, in order."""

_CLOCKS = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime"})


class StreamLeaf:
    """The leaf of a plan that reads the stream: the RDD below everything derived from it."""

    def __init__(self, frame: DataFrame) -> None:
        (scan,) = (
            n for n in _tree(_query_execution(frame).optimizedPlan()) if _name(n) == "LogicalRDD"
        )
        self._rdd: int = scan.rdd().id()

    def check(self, df: DataFrame, step: str) -> None:
        """Check that a plan is row-wise.

        Raises:
            InvalidJobError: it is not; the message says what to use instead.
        """
        planned = _query_execution(df)
        _check_clocks(planned.analyzed(), step)
        logical = planned.optimizedPlan()
        count = sum(self._is_scan(n) for n in _tree(logical))
        if count == 0:
            message = f"{step} returns a DataFrame that is not derived from the stream"
            raise InvalidJobError(message)
        if count > 1:
            message = (
                f"{step} uses the stream more than once, as in a self-join, but each row is "
                "processed alone: use connect() and key_by() of streams instead"
            )
            raise InvalidJobError(message)
        for node in self._path_to_stream(logical):
            self._check_node(node, step)
        for node in self._path_to_stream(planned.executedPlan()):
            if _name(node) not in _NARROW and not self._is_scan(node):
                message = (
                    f"{step} would be run by {_name(node)}, which moves the rows of the stream: "
                    "in a join, wrap the other DataFrame in functions.broadcast(), or in SQL use "
                    "a hint /*+ BROADCAST(name) */"
                )
                raise InvalidJobError(message)

    def _check_node(self, node: Any, step: str) -> None:
        name = _name(node)
        if name in _ROW_WISE or self._is_scan(node) or self._is_read(node):
            return
        if name == "Join":
            self._check_join(node, step)
            return
        does, instead = _REFUSED.get(name, (f"has a step {name}", _KEYED))
        message = f"{step} processes rows one by one, and this plan {does}: {instead}"
        raise InvalidJobError(message)

    def _check_join(self, node: Any, step: str) -> None:
        kind = node.joinType().getClass().getSimpleName().removesuffix("$")
        is_left = any(self._is_scan(n) for n in _tree(node.left()))
        allowed = _JOINS_OF_A_LEFT_STREAM if is_left else _JOINS_OF_A_RIGHT_STREAM
        if kind not in allowed:
            message = (
                f"{step} processes rows one by one, and this plan has a {kind} join, which also "
                "returns rows of the other DataFrame that match no row of the whole stream: use an "
                "inner join, or a left outer join from the stream"
            )
            raise InvalidJobError(message)

    def _path_to_stream(self, plan: Any) -> Iterator[Any]:
        """Yield the nodes from the top of a plan down to the stream."""
        yield plan
        for child in _seq(plan.children()):
            if any(self._is_scan(n) for n in _tree(child)):
                yield from self._path_to_stream(child)
                return
        if not self._is_scan(plan):
            # The stream is in a subquery, whose value depends on many rows.
            for below in _seq(plan.subqueries()):
                yield from self._path_to_stream(below)

    def _is_scan(self, node: Any) -> bool:
        return _name(node) in ("LogicalRDD", "RDDScanExec") and node.rdd().id() == self._rdd

    def _is_read(self, node: Any) -> bool:
        """Whether this node reads the stream."""
        return _name(node) == "MapInArrow" and self._is_scan(node.child())


def _check_clocks(analyzed: Any, step: str) -> None:
    for node in _tree(analyzed):
        for expression in _seq(node.expressions()):
            clock = next((_name(e) for e in _walk(expression) if _name(e) in _CLOCKS), None)
            if clock is not None:
                message = (
                    f"{step} uses the current time ({clock}), which Spark evaluates once for a "
                    "plan, and this plan runs as long as the job: read the clock in a map() before "
                    "this step"
                )
                raise InvalidJobError(message)


def _query_execution(df: DataFrame) -> Any:
    return df._jdf.queryExecution()


def _tree(plan: Any) -> Iterator[Any]:
    yield plan
    for below in (*_seq(plan.children()), *_seq(plan.subqueries())):
        yield from _tree(below)


def _walk(expression: Any) -> Iterator[Any]:
    yield expression
    for child in _seq(expression.children()):
        yield from _walk(child)


def _seq(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.size())]


def _name(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name.removesuffix("$")
