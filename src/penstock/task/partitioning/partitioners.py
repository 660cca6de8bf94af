"""Stream partitioners: they distribute the records of a task among the consumer subtasks.

Records are buffered until a chunk is full, then partitioned, encoded and written column by column.
A record that could change while it is buffered is copied first.
"""

from __future__ import annotations

import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import Columns, RecordLayout, decoder_for, encoder_for
from penstock.channel.segment import Segment, SliceWriter
from penstock.common.event_time import NO_TIMESTAMP
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
    is_immutable,
)
from penstock.datastream.batch_functions import ColumnKey
from penstock.datastream.functions import KeySelector, Partitioner
from penstock.errors import PenstockError
from penstock.graph.plan import Channel
from penstock.graph.transformation import Exchange
from penstock.state.keys import KeyCodec
from penstock.task.failure import copy_if_mutable, encode_records, fail
from penstock.task.operators.functions import callable_of
from penstock.task.partitioning.key_table import KEY_CLASSES, KeyTable
from penstock.task.time.timer_service import RecordTime
from penstock.types.coercion import INTEGER_BITS

CHUNK = 1 << 19
"""Records that are buffered before they are written; bounds the memory of a task."""

CHUNK_BYTES = 128 << 20
"""The same in bytes, for records that come as arrays."""

Push = Callable[[Any], None]

Times: TypeAlias = pa.Array | None
"""The event time of each record, None if they have none."""

_KEY_BY = "key_by"
_PARTITION_CUSTOM = "partition_custom"


@dataclass(frozen=True, slots=True)
class PartitionerContext:
    """What a partitioner works with in one task."""

    channel: Channel
    writer: SliceWriter
    step: str
    """The name of the step that produced the records it gets."""
    record_time: RecordTime
    subtask: int = 0


def partitioner_for(context: PartitionerContext) -> StreamPartitioner:
    """Return the partitioner of a channel's exchange."""
    kinds = {Exchange.HASH: KeyGroupPartitioner, Exchange.CUSTOM: CustomPartitioner}
    return kinds.get(context.channel.exchange, RebalancePartitioner)(context)


class StreamPartitioner(ABC):
    """Distributes the records of one task for one output channel."""

    def __init__(self, context: PartitionerContext) -> None:
        self.channel = channel = context.channel
        type_info = channel.record_type
        self._step = context.step
        self._record_time = context.record_time
        select = callable_of(channel.partitioning.key_selector, KeySelector)
        self._select: Callable[[Any], Any] = select
        self._consumers = channel.consumer_parallelism
        self._encode = encoder_for(type_info)
        self._writer = context.writer
        self._records: list[Any] = []
        self._decode = decoder_for(type_info)
        self._chunks: list[Columns] = []
        """Records that came as columns; a task uses either this or `_records`, never both."""
        self._keeps_arrays = type_info in (None, Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        """Whether an array of texts has the declared type."""
        self.count = 0
        immutable = type_info is not None and is_immutable(type_info)
        self._times: list[int] = []
        push: Push = self._records.append if immutable else self._push_checked
        self.push: Push = self._push_with_time(push) if channel.has_time else push
        """Takes one record; the hot path, hence an attribute and not a method."""

    def push_many(self, records: list[Any] | pa.Array) -> None:
        """Take records of a source, which no function can change."""
        if self.channel.has_time:
            self._times += [self._record_time.timestamp] * len(records)
        if isinstance(records, pa.Array):
            if self._keeps_arrays:
                self._chunks.append((RecordLayout.SCALAR, [records]))
            else:
                self._records.extend(records.to_pylist())
        else:
            self._records.extend(records)
        self.flush_if_full()

    def push_columns(self, columns: Columns, times: Times) -> None:
        """Take records as columns in the layout of the declared type."""
        if self.channel.has_time:
            rows = len(columns[1][0])
            self._times += [NO_TIMESTAMP] * rows if times is None else times.to_pylist()
        self._chunks.append(columns)
        self.flush_if_full()

    def flush_if_full(self) -> None:
        """Write the buffered records if they fill a chunk; called every few thousand records."""
        if (
            len(self._records) >= CHUNK
            or sum(len(arrays[0]) for _, arrays in self._chunks) >= CHUNK
            or sum(a.nbytes for _, arrays in self._chunks for a in arrays) >= CHUNK_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Write the buffered records."""
        if self._records:
            self.count += len(self._records)
            self._split(self._records, None, self._take_times())
            self._records.clear()
        if self._chunks:
            layout = self._chunks[0][0]
            each = zip(*(arrays for _, arrays in self._chunks), strict=True)
            columns = layout, [pa.concat_arrays(arrays) for arrays in each]
            self._chunks.clear()
            self.count += len(columns[1][0])
            self._split_columns(columns, self._take_times())

    def finish(self) -> Segment | None:
        """Write the rest; return the segment file, None if there is none."""
        self.flush()
        return self._writer.finish()

    @property
    def size(self) -> int:
        """How many bytes have been written."""
        return self._writer.size

    def _push_checked(self, record: Any) -> None:
        self._records.append(copy_if_mutable(self._step, record))

    def _push_with_time(self, push: Push) -> Push:
        record_time, note = self._record_time, self._times.append

        def push_with_time(record: Any) -> None:
            push(record)
            note(record_time.timestamp)

        return push_with_time

    def _take_times(self) -> pa.Array | None:
        if not self.channel.has_time:
            return None
        times = pa.array(self._times, pa.int64())
        self._times.clear()
        return times

    def _write_to(self, owners: npt.NDArray[np.int64], columns: Columns, times: Times) -> None:
        """Write each record to its owner, a consumer subtask."""
        for consumer in range(self._consumers):
            rows = np.flatnonzero(owners == consumer)
            if len(rows):
                self._write_rows(consumer, rows, len(owners), columns, times)

    def _write_rows(
        self,
        consumer: int,
        rows: npt.NDArray[np.intp],
        total: int,
        columns: Columns,
        times: Times,
        key: pa.Array | None = None,
    ) -> None:
        """Write some of `total` records to a consumer."""
        if len(rows) < total:
            layout, arrays = columns
            indices = pa.array(rows)
            columns = layout, [array.take(indices) for array in arrays]
            times = None if times is None else times.take(indices)
        self._writer.write(consumer, columns, key, times)

    def _split_columns(self, columns: Columns, times: Times) -> None:
        """Partition and write a chunk that came as columns."""
        self._split(self._decode(*columns), columns, times)

    @abstractmethod
    def _split(self, records: Sequence[Any], columns: Columns | None, times: Times) -> None:
        """Partition and write a chunk; `columns` is its encoding if it came as columns."""


class KeyGroupPartitioner(StreamPartitioner):
    """Sends each record to the subtask that owns the key group of its key."""

    def __init__(self, context: PartitionerContext) -> None:
        super().__init__(context)
        channel = self.channel
        self._codec = KeyCodec(channel.partitioning.key_type, _KEY_BY)
        self._own_key_classes = _own_key_classes(channel.record_type, channel.partitioning.key_type)
        self._column_key = channel.partitioning.key_selector
        self._field_names: list[str] = []
        if isinstance(channel.record_type, RowTypeInfo):
            self._field_names = channel.record_type.get_field_names()

    def _split(self, records: Sequence[Any], columns: Columns | None, times: Times) -> None:
        keys = self._keys(records)
        is_own_key = all(map(operator.is_, keys, records))
        texts = columns[1][0] if is_own_key and columns is not None else None
        if texts is not None and texts.type != pa.string():
            texts = None
        table = self._table(keys, texts, lambda: records)
        if is_own_key and table.exact and type(keys[0]) in self._own_key_classes:
            columns = _key_layout(table)
        elif columns is None:
            columns = encode_records(self._step, records, self._encode)
        self._write_by_key(table, columns, times, len(records))

    def _split_columns(self, columns: Columns, times: Times) -> None:
        column = self._key_column(columns)
        kind = None if column is None else KEY_CLASSES.get(column.type)
        if column is None or kind is None or column.null_count:
            super()._split_columns(columns, times)
            return
        table = self._table((), column, lambda: self._decode(*columns))
        if columns[0] is RecordLayout.SCALAR and kind in self._own_key_classes:
            columns = _key_layout(table)
        self._write_by_key(table, columns, times, len(column))

    def _table(
        self,
        keys: Sequence[Any],
        column: pa.Array | None,
        records: Callable[[], Sequence[Any]],
    ) -> KeyTable:
        try:
            groups, consumers = self.channel.max_parallelism, self._consumers
            return KeyTable(keys, self._codec, groups, consumers, column)
        except PenstockError:
            # Name the first record whose key cannot be encoded.
            found = records()
            for record, key in zip(found, keys or self._keys(found), strict=True):
                try:
                    self._codec.encode(key)
                except PenstockError as error:
                    fail(_KEY_BY, record, error)
            raise

    def _key_column(self, columns: Columns) -> pa.Array | None:
        """Return the column that holds the keys, if one does."""
        if not isinstance(self._column_key, ColumnKey):
            return None
        layout, arrays = columns
        field, names = self._column_key.field, self._field_names
        if layout is RecordLayout.SCALAR:
            return arrays[0] if field is None else None
        if isinstance(field, str) and field in names:
            field = names.index(field)
        if not isinstance(field, int) or not 0 <= field < len(arrays):
            return None
        array = arrays[field]
        return array.cast(pa.int64()) if pa.types.is_signed_integer(array.type) else array

    def _write_by_key(self, table: KeyTable, columns: Columns, times: Times, total: int) -> None:
        for consumer in range(self._consumers):
            rows = table.rows_of(consumer)
            if len(rows):
                distinct = pa.array(table.routed[consumer], pa.binary())
                key = pa.DictionaryArray.from_arrays(pa.array(table.positions(rows)), distinct)
                self._write_rows(consumer, rows, total, columns, times, key)

    def _keys(self, records: Sequence[Any]) -> list[Any]:
        keys: list[Any] = []
        try:
            keys.extend(map(self._select, records))
        except (Exception, SystemExit) as error:
            fail(_KEY_BY, records[len(keys)], error)
        return keys


class RebalancePartitioner(StreamPartitioner):
    """Distributes records without looking at them: round robin, at random, to one or to all."""

    def __init__(self, context: PartitionerContext) -> None:
        super().__init__(context)
        self._subtask = context.subtask
        # Every subtask starts with another consumer, so that small batches are spread too.
        self._next = random.randrange(self._consumers) if self._consumers > 1 else 0

    def _split_columns(self, columns: Columns, times: Times) -> None:
        # Only the number of records matters.
        self._split(range(len(columns[1][0])), columns, times)

    def _split(self, records: Sequence[Any], columns: Columns | None, times: Times) -> None:
        columns = columns or encode_records(self._step, records, self._encode)
        exchange = self.channel.exchange
        n, consumers = len(records), self._consumers
        if exchange is Exchange.FORWARD:
            self._writer.write(self._subtask, columns, None, times)
        elif exchange is Exchange.GLOBAL or consumers == 1:
            self._writer.write(0, columns, None, times)
        elif exchange is Exchange.BROADCAST:
            for consumer in range(consumers):
                self._writer.write(consumer, columns, None, times)
        else:
            if exchange is Exchange.SHUFFLE:
                owners = np.random.default_rng().integers(0, consumers, n)
            else:
                owners = (np.arange(n) + self._next) % consumers
                self._next = (self._next + n) % consumers
            self._write_to(owners, columns, times)


class CustomPartitioner(StreamPartitioner):
    """Sends each record to the subtask that the user's partitioner chooses."""

    def __init__(self, context: PartitionerContext) -> None:
        super().__init__(context)
        self._partition = callable_of(self.channel.partitioning.partitioner, Partitioner)

    def _split(self, records: Sequence[Any], columns: Columns | None, times: Times) -> None:
        owners = np.fromiter(map(self._owner, records), np.int64, len(records))
        self._write_to(owners, columns or encode_records(self._step, records, self._encode), times)

    def _owner(self, record: Any) -> int:
        count = self._consumers
        try:
            owner = self._partition(self._select(record), count)
            if not isinstance(owner, (int, np.integer)) or not 0 <= owner < count:
                message = (
                    f"the partitioner must return a number from 0 to {count - 1}, not {owner!r}"
                )
                raise ValueError(message)
        except (Exception, SystemExit) as error:
            fail(_PARTITION_CUSTOM, record, error)
        return int(owner)


def _key_layout(table: KeyTable) -> Columns:
    """Return the columns of records that are their own keys."""
    return RecordLayout.TEXT_KEY if table.plain_texts else RecordLayout.KEY, []


def _own_key_classes(
    record_type: TypeInformation | None, key_type: TypeInformation | None
) -> frozenset[type]:
    """Return the classes whose values are not written beside a key that equals them.

    Decoding the key must return the value, and encoding it must check what encoding the value
    would.
    """
    ranged = isinstance(record_type, BasicTypeInfo) and record_type.kind in INTEGER_BITS
    if ranged and record_type != key_type:
        return frozenset()
    return _classes(record_type) & _classes(key_type)


def _classes(type_info: TypeInformation | None) -> frozenset[type]:
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return frozenset({str, int, bytes})
    kind = type_info.kind if isinstance(type_info, BasicTypeInfo) else None
    if kind in INTEGER_BITS or kind is BasicType.BIG_INT:
        return frozenset({int})
    return frozenset({str}) if kind is BasicType.STRING else frozenset()
