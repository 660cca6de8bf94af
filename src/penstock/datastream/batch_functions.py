"""Functions over Arrow record batches: the fast way to write a step. Not in PyFlink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.datastream.batch_keys import BatchKeys
from penstock.datastream.functions import KeySelector
from penstock.datastream.runtime_context import Function

__all__ = ["BatchFunction", "BatchKeys", "ColumnKey", "KeyedBatchFunction"]


class _BatchContext(ABC):
    @property
    @abstractmethod
    def timestamps(self) -> pa.Int64Array | None:
        """The event time of each row in milliseconds, None in a stream without."""


class BatchFunction(Function):
    """Processes record batches.

    Called with some records of a micro-batch at a time, in their order; the boundaries of batches
    may differ from run to run, and nothing may depend on them.
    """

    class Context(_BatchContext):
        """Information about the batch."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> Iterable[pa.RecordBatch] | None:
        """Yield record batches, or return one, with the columns of ``output_type``.

        In a stream with event time, a batch with the same number of rows as the input gets their
        timestamps; with any other number, yield ``(batch, timestamps)``.
        """


class KeyedBatchFunction(Function):
    """Processes record batches of a keyed stream, with access to keyed state.

    Called at most once per micro-batch and subtask, with all its records: those of one key are in
    order. A micro-batch that is lost runs again from the state before it, so effects on state and
    output count once, as those of any function.
    """

    class Context(_BatchContext):
        """Information about the batch."""

        @property
        @abstractmethod
        def keys(self) -> BatchKeys:
            """The keys of the batch."""

        @abstractmethod
        def use_key(self, place: int) -> None:
            """Make the key at this index of `keys` the current key of all states.

            For states without `get_many` and `put_many`: lists, maps, accumulators.
            """

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> Iterable[pa.RecordBatch] | None:
        """Yield record batches, or return one, with the columns of ``output_type``.

        Timestamps are handled as in `BatchFunction.process_batch`.
        """


class ColumnKey(KeySelector[Any, Any]):
    """Uses a field as the key: by name, by position in a tuple, or the record itself.

    It does the same as a lambda, but records stay columns on their way to a keyed step.
    """

    def __init__(self, field: str | int | None = None) -> None:
        self.field = field

    def get_key(self, value: Any) -> Any:
        """Return the field of a record."""
        return value if self.field is None else value[self.field]
