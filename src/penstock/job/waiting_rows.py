"""What waits in a channel as a table: a row for each record, barrier and end of input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.channel.columns import column_type, decoder_for
from penstock.channel.log import Entry, EntryKind
from penstock.channel.segment import SegmentPart, read_slices
from penstock.common.java_text import format_value, java_string
from penstock.common.typeinfo import TypeInformation
from penstock.errors import CorruptSegmentError
from penstock.errors.base import show
from penstock.state.key_groups import key_of
from penstock.state.keys import decode_key
from penstock.task.keyed import Part

_RECORD = "record"


def waiting_rows(
    entries: Sequence[Entry],
    first: int,
    type_info: TypeInformation | None,
    directory: Path,
    limit: int | None = None,
) -> pa.Table:
    """Return a table of some entries of a log, `first` being the position of the first one.

    Columns: `position` in the log, `kind` (record, barrier, end of input), `checkpoint` of a
    barrier, `subtask` of the consumer that a record is for, its `key` as text if it has one, and
    its `value`: typed if the declared type is basic, or a row or tuple of such; else as text.
    An entry whose files are gone was consumed meanwhile, and is left out.

    Raises:
        CorruptSegmentError: a file is damaged.
    """
    shown = _Shown(type_info)
    left = sys.maxsize if limit is None else limit
    batches: list[pa.RecordBatch] = []
    for position, entry in enumerate(entries, first):
        if entry.kind is not EntryKind.DATA and left > 0:
            row = {"position": position, "kind": entry.kind.value, "checkpoint": entry.checkpoint}
            batches.append(pa.RecordBatch.from_pylist([row], shown.schema))
            left -= 1
        for subtask, part in _parts(entry, directory) if left > 0 else ():
            part.shorten(left)
            batches.append(_records(part, position, subtask, shown))
            left -= part.rows
    return pa.Table.from_batches(batches, shown.schema)


class _Shown:
    """How the records of one channel are shown."""

    def __init__(self, type_info: TypeInformation | None) -> None:
        self._type_info = type_info
        self._typed = column_type(type_info)
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
            # Whatever a user's own class does there, the other records are to be seen.
            text = show(value)
        return _encodable(text)


def _parts(entry: Entry, directory: Path) -> list[tuple[int, SegmentPart]]:
    """Return the parts of an entry with the subtasks they are for; none if it is gone."""
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


def _records(part: SegmentPart, position: int, subtask: int, shown: _Shown) -> pa.RecordBatch:
    count = part.rows
    columns = [
        pa.repeat(pa.scalar(position, pa.int64()), count),
        pa.repeat(pa.scalar(_RECORD), count),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(subtask, pa.int32()), count),
        _keys(part),
        shown.values(Part(part, shown.decode).values()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shown.schema)


def _keys(part: SegmentPart) -> pa.Array:
    if part.key is None:
        return pa.nulls(part.rows, pa.string())
    keys = (decode_key(key_of(routed)) for routed in part.key.dictionary.to_pylist())
    texts = pa.array([_encodable(java_string(key, None)) for key in keys], pa.string())
    return texts.take(part.key.indices)


def _encodable(text: str) -> str:
    """Return a text Arrow takes: half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
