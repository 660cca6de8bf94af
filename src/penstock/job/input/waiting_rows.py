"""Shows the entries that wait in a channel as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.channel.columns import decoder_for
from penstock.channel.log import Entry, EntryKind
from penstock.channel.segment import DecodedSlice, read_slices
from penstock.common.storage_url import Location
from penstock.common.text.java_text import format_value, java_string
from penstock.common.typeinfo import TypeInformation
from penstock.errors import CorruptSegmentError
from penstock.errors.base import short_repr
from penstock.state.key_groups import key_of
from penstock.state.keys import decode_key
from penstock.task.heads.inputs import InputSlice
from penstock.types.arrow import flat_type

_RECORD = "record"


def waiting_rows(
    entries: Sequence[Entry],
    first: int,
    type_info: TypeInformation | None,
    directory: Location,
    limit: int | None = None,
) -> pa.Table:
    """Return log entries as a table, a row per record, barrier and end of input.

    Columns: `position` in the log, counted from `first`; `kind` (record, barrier, end of input);
    `checkpoint` of a barrier; `subtask` of the consumer; the record's `key` as text, if it has one,
    and `value`: typed if the declared type is basic, or a row or tuple of such; else as text.
    Entries whose files are gone were consumed meanwhile, and are left out.

    Raises:
        CorruptSegmentError: a file is damaged.
    """
    row_format = _RowFormat(type_info)
    left = sys.maxsize if limit is None else limit
    batches: list[pa.RecordBatch] = []
    for position, entry in enumerate(entries, first):
        if entry.kind is not EntryKind.DATA and left > 0:
            row = {"position": position, "kind": entry.kind.value, "checkpoint": entry.checkpoint}
            batches.append(pa.RecordBatch.from_pylist([row], row_format.schema))
            left -= 1
        for subtask, part in _parts(entry, directory) if left > 0 else ():
            part.truncate(left)
            batches.append(_records(part, position, subtask, row_format))
            left -= part.rows
    return pa.Table.from_batches(batches, row_format.schema)


class _RowFormat:
    """The columns of the table that `waiting_rows` returns for one channel."""

    def __init__(self, type_info: TypeInformation | None) -> None:
        self._type_info = type_info
        self._typed = flat_type(type_info)
        self.decode = decoder_for(type_info)
        self.schema = pa.schema(
            [
                ("position", pa.int64()),
                ("kind", pa.string()),
                ("checkpoint", pa.int64()),
                ("subtask", pa.int32()),
                ("key", pa.string()),
                ("value", self._typed or pa.string()),
            ]
        )

    def values(self, values: Sequence[Any]) -> pa.Array:
        if self._typed is None:
            return pa.array([self._text(value) for value in values], pa.string())
        if not pa.types.is_struct(self._typed):
            return pa.array(values, self._typed)
        names = [field.name for field in self._typed]
        return pa.array([dict(zip(names, row, strict=True)) for row in values], self._typed)

    def _text(self, value: Any) -> str:
        try:
            text = format_value(value, self._type_info)
        except Exception:
            # A user's `__str__` that raises must not hide the other records.
            text = short_repr(value)
        return _encodable(text)


def _parts(entry: Entry, directory: Location) -> list[tuple[int, DecodedSlice]]:
    """Return the slices of an entry with their subtasks; none if its files are gone."""
    try:
        return [
            (subtask, part)
            for segment in entry.segments
            for subtask, slices in enumerate(segment.slices)
            for part in read_slices(directory / segment.name, slices)
        ]
    except CorruptSegmentError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise


def _records(part: DecodedSlice, position: int, subtask: int, form: _RowFormat) -> pa.RecordBatch:
    count = part.rows
    columns = [
        pa.repeat(pa.scalar(position, pa.int64()), count),
        pa.repeat(pa.scalar(_RECORD), count),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(subtask, pa.int32()), count),
        _keys(part),
        form.values(InputSlice(part, form.decode).values()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _keys(part: DecodedSlice) -> pa.Array:
    if part.key is None:
        return pa.nulls(part.rows, pa.string())
    keys = (decode_key(key_of(routed)) for routed in part.key.dictionary.to_pylist())
    texts = pa.array([_encodable(java_string(key, None)) for key in keys], pa.string())
    return texts.take(part.key.indices)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which Arrow rejects, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
