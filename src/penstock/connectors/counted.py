"""Enumerator of sources whose records are numbered from 0 to a known count."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from penstock.connectors.source import EnumeratorContext, Plan, SourceEnumerator, SplitRange

__all__ = ["ONLY_SPLIT", "CountedEnumerator", "contiguous_pieces"]

ONLY_SPLIT = "0"
"""The split of a source that has just one."""


def contiguous_pieces(split: str, start: int, end: int, pieces: int) -> Plan:
    """Cut a range into one even, ascending piece per subtask; short ranges leave some out."""
    length = end - start
    cuts = [start + length * piece // pieces for piece in range(pieces + 1)]
    return [[SplitRange(split, low, high)] if low < high else [] for low, high in pairwise(cuts)]


class CountedEnumerator(SourceEnumerator):
    """Plans the numbers from 0 to ``count``, each plan divided evenly among the subtasks."""

    def __init__(self, count: int, context: EnumeratorContext) -> None:
        self._count = count
        self._parallelism = context.parallelism
        self._split = ONLY_SPLIT
        self._next = 0

    def start(self, positions: Mapping[str, int]) -> None:
        self._next = positions.get(self._split, 0)

    def plan(self, max_records: int) -> Plan:
        start = self._next
        end = min(start + max_records, self._count)
        if start >= end:
            return []
        self._next = end
        return contiguous_pieces(self._split, start, end, self._parallelism)

    def positions(self) -> dict[str, int]:
        return {self._split: self._next}

    def finished(self) -> bool:
        return self._next >= self._count
