"""Functions over Arrow record batches, penstock's own: the fast way to write a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.datastream.batch_keys import BatchKeys
from penstock.datastream.functions import KeySelector
from penstock.datastream.runtime_context import Function

__all__ = ["BatchFunction", "BatchKeys", "ColumnKey", "KeyedBatchFunction"]


class BatchFunction(Function):
    """Takes record batches and yields others.

    Called with some records of a micro-batch at a time, in their order; how they are cut into
    batches may differ from run to run, and nothing may depend on it.
    """

    class Context(ABC):
        """What the function may ask for."""

        @property
        @abstractmethod
        def timestamps(self) -> pa.Int64Array | None:
            """The event time of each row in milliseconds, None in a stream without."""

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> Iterable[pa.RecordBatch] | None:
        """Yield record batches, or return one, with the columns that ``output_type`` says.

        In a stream with event time a batch with as many rows as came in has their timestamps; with
        any other number, yield ``(batch, timestamps)``.
        """


class KeyedBatchFunction(Function):
    """Takes record batches of a keyed stream, and has state by key.

    Called at most once per micro-batch and subtask, with all its records: those of one key are in
    order. A micro-batch that is lost runs again from the state before it, so effects on state and
    output count once, as those of any function.
    """

    class Context(ABC):
        """What the function may ask for."""

        @property
        @abstractmethod
        def keys(self) -> BatchKeys:
            """The keys of the batch."""

        @property
        @abstractmethod
        def timestamps(self) -> pa.Int64Array | None:
            """The event time of each row in milliseconds, None in a stream without."""

        @abstractmethod
        def use_key(self, place: int) -> None:
            """Let every state show what belongs to the key at this place of `keys`.

            For what `get_many` and `put_many` do not do: lists, maps, accumulators.
            """

    @abstractmethod
    def process_batch(self, batch: pa.RecordBatch, ctx: Context) -> Iterable[pa.RecordBatch] | None:
        """Yield record batches, or return one, with the columns that ``output_type`` says.

        In a stream with event time a batch with as many rows as came in has their timestamps; with
        any other number, yield ``(batch, timestamps)``.
        """


class ColumnKey(KeySelector[Any, Any]):
    """Takes one field as the key: by name, by position in a tuple, or the record itself.

    Does what a lambda would, and lets columns stay columns on their way to a keyed step.
    """

    def __init__(self, field: str | int | None = None) -> None:
        self.field = field

    def get_key(self, value: Any) -> Any:
        """Return the field of a record."""
        return value if self.field is None else value[self.field]
