"""Source of the elements of a Python collection."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle

from penstock.connectors.counted import CountedEnumerator
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.state.serializers import edge_serializer_for

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

__all__ = ["CollectionSource"]

# A range decodes only the blocks it touches, so many small ranges do not decode all each time.
_BLOCK_ELEMENTS = 4096


class CollectionSource(Source):
    """The elements of a collection as they are now, in order.

    They are pickled once, here: changing an element later changes nothing in the stream. With a
    type they take its form (a tuple under ROW becomes a row), and one that does not fit is
    refused.
    """

    def __init__(self, elements: Iterable[Any], type_info: TypeInformation | None = None) -> None:
        values = _at_the_edge(list(elements), type_info)
        self._count = len(values)
        self._type_info = type_info
        self._blocks = [
            cloudpickle.dumps(values[first : first + _BLOCK_ELEMENTS])
            for first in range(0, len(values), _BLOCK_ELEMENTS)
        ]

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._type_info

    def default_parallelism(self) -> int | None:
        return 1

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        return CountedEnumerator(self._count, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        start, end = split_range.start, split_range.end
        for index in range(start // _BLOCK_ELEMENTS, -(-end // _BLOCK_ELEMENTS)):
            first = index * _BLOCK_ELEMENTS
            block = pickle.loads(self._blocks[index])
            yield block[max(start - first, 0) : end - first]


def _at_the_edge(values: list[Any], type_info: TypeInformation | None) -> list[Any]:
    if type_info is None:
        return values
    serializer = edge_serializer_for(type_info)
    fit, write, decode = serializer.fit, serializer.write, serializer.decode
    return [decode(write(fit(value, f"[{i}]"))) for i, value in enumerate(values)]
