"""Record batches as functions see them: named columns of a declared type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.channel.columns import Columns, RecordLayout, decoder_for, encoder_for
from penstock.common.row import Row, RowKind
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.types.arrow import flat_type

VALUE = "value"
"""The only column of records that are not rows or tuples."""


class BatchSchema:
    """The schema of record batches of a type: a column per field, or one for the record."""

    def __init__(self, type_info: TypeInformation, arrow: pa.DataType) -> None:
        fields = list(arrow) if pa.types.is_struct(arrow) else [pa.field(VALUE, arrow)]
        # Only the fields of a row may be None.
        nullable = isinstance(type_info, RowTypeInfo)
        self.schema = pa.schema([field.with_nullable(nullable) for field in fields])
        self._layout = RecordLayout.SCALAR
        if pa.types.is_struct(arrow):
            self._layout = RecordLayout.ROW if nullable else RecordLayout.TUPLE
        self._encode = encoder_for(type_info)
        self._decode = decoder_for(type_info)

    def encode(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Return records as a batch.

        Raises:
            TypeMismatchError: a record does not fit its declared type.
        """
        return self.batch(self._encode(records))

    def batch(self, columns: Columns) -> pa.RecordBatch:
        """Return columns of a channel as a batch."""
        layout, arrays = columns
        if layout is not self._layout:
            arrays = self._arrays(self._decode(layout, arrays))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def columns(self, batch: Any) -> Columns:
        """Return the columns of a batch that a function returned.

        Raises:
            ValueError: they are not those of the type; names the expected ones.
        """
        if not isinstance(batch, pa.RecordBatch):
            message = f"process_batch() must yield record batches; it yielded {batch!r}"
            raise ValueError(message)
        arrays = [_plain(array) for array in batch.columns]
        found = [(n, a.type) for n, a in zip(batch.schema.names, arrays, strict=True)]
        if found != [(field.name, field.type) for field in self.schema]:
            shown = ", ".join(f"{name}: {arrow}" for name, arrow in found)
            message = f"it yielded the columns {shown}; its output_type has {self}"
            raise ValueError(message)
        for field, array in zip(self.schema, arrays, strict=True):
            if array.null_count and not field.nullable:
                message = f"column {field.name} has nulls; only fields of a Row may be null"
                raise ValueError(message)
        return self._layout, arrays

    def records(self, columns: Columns) -> list[Any]:
        """Return columns as records."""
        return self._decode(*columns)

    def __str__(self) -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in self.schema)

    def _arrays(self, records: list[Any]) -> list[pa.Array]:
        if self._layout is RecordLayout.SCALAR:
            return [pa.array(records, self.schema[0].type)]
        for record in records:
            if isinstance(record, Row) and record.get_row_kind() is not RowKind.INSERT:
                message = f"a record batch holds rows to insert only; got {record!r}"
                raise ValueError(message)
        fields = zip(*records, strict=True)
        return [pa.array(v, field.type) for v, field in zip(fields, self.schema, strict=True)]


def batch_schema_for(type_info: TypeInformation | None) -> BatchSchema | None:
    """Return the batch schema of a type, None if its records have no columns."""
    arrow = flat_type(type_info)
    return None if type_info is None or arrow is None else BatchSchema(type_info, arrow)


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
