"""Counts the records between the operators of a chain, mostly without looking at each of them.

Most counts are there anyway: a head knows how many records it has read, a partitioner and a step
that buffers how many they got, and an operator that emits one record for each it takes has as many
on both sides. Only between two operators that know nothing a step is inserted that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.channel.columns import Columns
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.task.messages import OperatorCounts
from penstock.task.operators.batch_step import PushColumns
from penstock.task.operators.steps import Push

Count = Callable[[], int]

_ONE_TO_ONE = frozenset(
    {
        OperatorKind.SOURCE,
        OperatorKind.MAP,
        OperatorKind.KEYED_MAP,
        OperatorKind.DECOUPLE,
        OperatorKind.ASSIGN_TIMESTAMPS,
    }
)
"""Operators that emit one record for each that they take."""

COUNTING_HEADS = frozenset({OperatorKind.KEYED_PROCESS, OperatorKind.KEYED_CO_PROCESS})
"""Heads that add what they emit to `RecordCounts.emitted`: that costs less than another step."""


class RecordCounts:
    """The records on each edge of a chain in one task: from an operator to one of its outputs.

    The chain is built from its end, so the steps after an edge are known before those before it.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._edges: dict[tuple[int, str | None], Count] = {}
        """By the operator and the tag of its side output, None for the main output."""
        self._taken: dict[int, Count] = {}
        """By operator, how many records it took, where it knows without being told."""
        self._records_in = 0
        self.emitted = 0
        """The records that the head has emitted, if it is one that counts them itself."""

    def takes(self, node: Node, count: Count) -> None:
        """Use the count of a step that knows how many records it took."""
        self._taken[node.id] = count

    def edge(self, node: Node, tag: str | None, push: Push, partitioners: Iterable[Count]) -> Push:
        """Return the step that takes the records of an edge: `push`, or one that counts, too.

        `partitioners` count the records that leave the stage there.
        """
        taken = (self._taken.get(follower.id) for follower in self._followers(node, tag))
        known = next((count for count in (*partitioners, *taken) if count is not None), None)
        is_one_to_one = node.kind in _ONE_TO_ONE and not self._stage.side_outputs(node)
        if known is None and is_one_to_one:
            self._edges[node.id, tag] = lambda: self._into(node)
            return push
        if known is None and node is self._stage.head and node.kind in COUNTING_HEADS:
            known = None if self._stage.side_outputs(node) else lambda: self.emitted
        if known is None:
            push, known = _counting(push)
        self._edges[node.id, tag] = known
        if is_one_to_one:
            self._taken[node.id] = known
        return push

    def columns_edge(self, node: Node, push: PushColumns) -> PushColumns:
        """Return the step that takes the columns that an operator emits, and counts their rows."""
        rows = 0

        def counted(columns: Columns, times: pa.Array | None) -> None:
            nonlocal rows
            rows += len(columns[1][0])
            push(columns, times)

        self._edges[node.id, None] = lambda: rows
        return counted

    def by_operator(self, records_in: int) -> dict[str, OperatorCounts]:
        """Return the counts of all operators, by uid; `records_in` are those of the head."""
        self._records_in = records_in
        emitted: dict[int, int] = {}
        for (node, _), count in self._edges.items():
            emitted[node] = emitted.get(node, 0) + count()
        counts = {
            str(node.uid): OperatorCounts(self._into(node), emitted.get(node.id, 0))
            for node in self._stage.nodes
        }
        return {uid: c for uid, c in counts.items() if c.records_in or c.records_out}

    def _into(self, node: Node) -> int:
        if node is self._stage.head:
            return self._records_in
        edge = node.inputs[0]
        count = self._edges.get((edge.source, None if edge.tag is None else edge.tag.tag_id))
        return 0 if count is None else count()

    def _followers(self, node: Node, tag: str | None) -> list[Node]:
        inputs = [(n, n.inputs[0].tag) for n in self._stage.followers(node)]
        return [n for n, side in inputs if (None if side is None else side.tag_id) == tag]


def _counting(push: Push) -> tuple[Push, Count]:
    records = 0

    def counted(record: object) -> None:
        nonlocal records
        records += 1
        push(record)

    return counted, lambda: records
