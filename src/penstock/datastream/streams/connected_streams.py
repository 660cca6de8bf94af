"""Two connected streams, which one function processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.common.pyflink.missing_names import ExplainsMissingMethods
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.errors import InvalidJobError
from penstock.graph.transformation import OperatorKind

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream


class ConnectedStreams(ExplainsMissingMethods):
    """Two streams, possibly of different types, as the inputs of one function.

    If both are keyed, records of the same key go to the same subtask and share the key's state. If
    only one is, its records are partitioned by key, but there is no keyed state. The order of
    records of different streams is undefined.
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector[Any, Any],
        key_selector2: Callable[[Any], Any] | KeySelector[Any, Any],
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams:
        """Partition both streams by key; records of the same key share the key's state."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def map(
        self, func: CoMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Map each record to one other, or to none if the function returns None."""
        _check("map", func, CoMapFunction)
        kinds = OperatorKind.CO_MAP, OperatorKind.KEYED_CO_MAP
        return self._then(kinds, "Co-Map", func, output_type)

    def flat_map(
        self, func: CoFlatMapFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Map each record to any number of others."""
        _check("flat_map", func, CoFlatMapFunction)
        kinds = OperatorKind.CO_FLAT_MAP, OperatorKind.KEYED_CO_FLAT_MAP
        return self._then(kinds, "Co-Flat Map", func, output_type)

    def process(
        self,
        func: CoProcessFunction[Any, Any, Any] | KeyedCoProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Run a process function over the records of both streams."""
        _check("process", func, CoProcessFunction, KeyedCoProcessFunction)
        kinds = OperatorKind.CO_PROCESS, OperatorKind.KEYED_CO_PROCESS
        name = "Keyed Co-Process" if self._is_keyed else "Co-Process"
        return self._then(kinds, name, func, output_type)

    @property
    def _is_keyed(self) -> bool:
        return self.stream1._is_keyed and self.stream2._is_keyed

    def _then(
        self,
        kinds: tuple[OperatorKind, OperatorKind],
        name: str,
        func: Any,
        output_type: TypeInformation | None,
    ) -> DataStream:
        plain, keyed = kinds
        kind = keyed if self._is_keyed else plain
        return self.stream1._then_with(self.stream2, kind, name, func, output_type)


def _check(method: str, func: Any, *kinds: type) -> None:
    wanted = " or a ".join(kind.__name__ for kind in kinds)
    if isinstance(func, type) and issubclass(func, kinds):
        message = f"{method}() needs an instance; got the class: did you mean {func.__name__}()?"
        raise InvalidJobError(message)
    if not isinstance(func, kinds):
        message = f"{method}() of connected streams needs a {wanted}; got {func!r}"
        raise InvalidJobError(message)
