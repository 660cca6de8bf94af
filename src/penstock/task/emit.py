"""Emitters: the outgoing end of a chain, splitting records between consumer subtasks.

Records are kept until a chunk is full and then split, encoded and written column by column.
A record that could change while it waits is copied when it is emitted.
"""

from __future__ import annotations

import operator
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.channel.columns import Columns, Layout, decoder_for, encoder_for
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
from penstock.errors import PenstockError
from penstock.graph.plan import Channel
from penstock.graph.transformation import Exchange
from penstock.state.fitting import INTEGER_BITS
from penstock.state.keys import KeyCodec
from penstock.task.failure import copy_for_later, fail
from penstock.task.keys import KEY_KINDS, KeyTable
from penstock.task.moment import Moment

CHUNK = 1 << 19
"""Records kept before they are written; bounds what a task holds in memory."""

CHUNK_BYTES = 128 << 20
"""The same in bytes, as far as they are known: long texts come in arrays."""

Push = Callable[[Any], None]

_KEY_BY = "key_by"
_PARTITION_CUSTOM = "partition_custom"


class Emitter(ABC):
    """Takes the records of one task for one output channel."""

    def __init__(
        self,
        channel: Channel,
        type_info: TypeInformation | None,
        writer: SliceWriter,
        step: str,
        moment: Moment,
    ) -> None:
        self._channel = channel
        self._step = step
        self._moment = moment
        self._consumers = channel.consumer_parallelism
        self._encode = encoder_for(type_info)
        self._writer = writer
        self._records: list[Any] = []
        self._decode = decoder_for(type_info)
        self._chunks: list[Columns] = []
        """Whoever gives columns gives nothing else: this and records are never in use together."""
        self._keeps_arrays = type_info in (None, Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        """Whether an array of texts is what the declared type says."""
        self.count = 0
        immutable = type_info is not None and is_immutable(type_info)
        self._times: list[int] = []
        """The event time of each record, where the channel has time."""
        push: Push = self._records.append if immutable else self._push_checked
        self.push: Push = self._push_with_time(push) if channel.has_time else push
        """Take one record; the hot path, hence an attribute and not a method."""

    def push_many(self, records: list[Any] | pa.Array) -> None:
        """Take records nobody else holds, as they come from a source."""
        if self._channel.has_time:
            self._times += [self._moment.timestamp] * len(records)
        if isinstance(records, pa.Array):
            if self._keeps_arrays:
                self._chunks.append((Layout.SCALAR, [records]))
            else:
                self._records.extend(records.to_pylist())
        else:
            self._records.extend(records)
        self.trim()

    def push_columns(self, columns: Columns, times: pa.Array | None) -> None:
        """Take records as columns of the layout that the declared type has."""
        if self._channel.has_time:
            rows = len(columns[1][0])
            self._times += [NO_TIMESTAMP] * rows if times is None else times.to_pylist()
        self._chunks.append(columns)
        self.trim()

    def trim(self) -> None:
        """Write what is there if it is a chunk; called every few thousand records."""
        if (
            len(self._records) >= CHUNK
            or sum(len(arrays[0]) for _, arrays in self._chunks) >= CHUNK
            or sum(a.nbytes for _, arrays in self._chunks for a in arrays) >= CHUNK_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Write what is there."""
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
        """Write the rest and say what was written, if it is a file."""
        self.flush()
        return self._writer.finish()

    def _push_checked(self, record: Any) -> None:
        self._records.append(copy_for_later(self._step, record))

    def _push_with_time(self, push: Push) -> Push:
        moment, note = self._moment, self._times.append

        def push_with_time(record: Any) -> None:
            push(record)
            note(moment.timestamp)

        return push_with_time

    def _columns(self, records: Sequence[Any]) -> Columns:
        try:
            return self._encode(records)
        except PenstockError as error:
            for record in records:
                try:
                    self._encode([record])
                except PenstockError as at_fault:
                    fail(self._step, record, at_fault)
            raise error

    def _take_times(self) -> pa.Array | None:
        if not self._channel.has_time:
            return None
        times = pa.array(self._times, pa.int64())
        self._times.clear()
        return times

    def _deal(
        self, owners: npt.NDArray[np.int64], columns: Columns, times: pa.Array | None
    ) -> None:
        """Write each record to the consumer whose number is at its place."""
        for consumer in range(self._consumers):
            rows = np.flatnonzero(owners == consumer)
            if len(rows):
                taken, at = _take(columns, times, rows, len(owners))
                self._writer.write(consumer, taken, None, at)

    def _split_columns(self, columns: Columns, times: pa.Array | None) -> None:
        """Write a chunk that came as columns."""
        self._split(self._decode(*columns), columns, times)

    @abstractmethod
    def _split(
        self, records: Sequence[Any], columns: Columns | None, times: pa.Array | None
    ) -> None:
        """Write the chunk; `columns` holds it already encoded, if it came that way."""


class KeyEmitter(Emitter):
    """Sends each record to the subtask that owns its key's key group."""

    def __init__(
        self,
        channel: Channel,
        type_info: TypeInformation | None,
        writer: SliceWriter,
        step: str,
        moment: Moment,
        select: Callable[[Any], Any],
    ) -> None:
        super().__init__(channel, type_info, writer, step, moment)
        self._select = select
        self._codec = KeyCodec(channel.partitioning.key_type, _KEY_BY)
        self._own_key_classes = _own_key_classes(type_info, channel.partitioning.key_type)
        self._column_key = channel.partitioning.key_selector
        self._field_names: list[str] = []
        if isinstance(type_info, RowTypeInfo):
            self._field_names = type_info.get_field_names()

    def _split(
        self, records: Sequence[Any], columns: Columns | None, times: pa.Array | None
    ) -> None:
        keys = self._keys(records)
        is_own_key = all(map(operator.is_, keys, records))
        texts = columns[1][0] if is_own_key and columns is not None else None
        try:
            table = KeyTable(
                keys,
                self._codec,
                self._channel.max_parallelism,
                self._consumers,
                texts if texts is not None and texts.type == pa.string() else None,
            )
        except PenstockError as error:
            self._fail_on_first_bad_key(records, keys, error)
        if is_own_key and table.exact and type(keys[0]) in self._own_key_classes:
            columns = _in_its_key(table)
        elif columns is None:
            columns = self._columns(records)
        self._write_by_key(table, columns, times, len(records))

    def _split_columns(self, columns: Columns, times: pa.Array | None) -> None:
        column = self._key_column(columns)
        kind = None if column is None else KEY_KINDS.get(column.type)
        if column is None or kind is None or column.null_count:
            super()._split_columns(columns, times)
            return
        parallelisms = self._channel.max_parallelism, self._consumers
        try:
            table = KeyTable((), self._codec, *parallelisms, column)
        except PenstockError as error:
            records = self._decode(*columns)
            self._fail_on_first_bad_key(records, self._keys(records), error)
        if columns[0] is Layout.SCALAR and kind in self._own_key_classes:
            columns = _in_its_key(table)
        self._write_by_key(table, columns, times, len(column))

    def _key_column(self, columns: Columns) -> pa.Array | None:
        """Return the column that holds the keys, if one does."""
        if not isinstance(self._column_key, ColumnKey):
            return None
        layout, arrays = columns
        field, names = self._column_key.field, self._field_names
        if layout is Layout.SCALAR:
            return arrays[0] if field is None else None
        if isinstance(field, str) and field in names:
            field = names.index(field)
        if not isinstance(field, int) or not 0 <= field < len(arrays):
            return None
        array = arrays[field]
        return array.cast(pa.int64()) if pa.types.is_signed_integer(array.type) else array

    def _write_by_key(
        self, table: KeyTable, columns: Columns, times: pa.Array | None, total: int
    ) -> None:
        for consumer in range(self._consumers):
            rows = table.rows_of(consumer)
            if len(rows):
                key = pa.DictionaryArray.from_arrays(
                    pa.array(table.positions(rows)), pa.array(table.routed[consumer], pa.binary())
                )
                taken, at = _take(columns, times, rows, total)
                self._writer.write(consumer, taken, key, at)

    def _keys(self, records: Sequence[Any]) -> list[Any]:
        keys: list[Any] = []
        try:
            keys.extend(map(self._select, records))
        except (Exception, SystemExit) as error:
            fail(_KEY_BY, records[len(keys)], error)
        return keys

    def _fail_on_first_bad_key(
        self, records: Sequence[Any], keys: list[Any], error: PenstockError
    ) -> NoReturn:
        for record, key in zip(records, keys, strict=True):
            try:
                self._codec.encode(key)
            except PenstockError as at_fault:
                fail(_KEY_BY, record, at_fault)
        raise error


class DealEmitter(Emitter):
    """Deals records out without looking at them: in turn, at random, to one or to all."""

    def __init__(
        self,
        channel: Channel,
        type_info: TypeInformation | None,
        writer: SliceWriter,
        step: str,
        moment: Moment,
        subtask: int,
    ) -> None:
        super().__init__(channel, type_info, writer, step, moment)
        self._subtask = subtask
        # Every subtask starts its round elsewhere, so that small batches spread too.
        self._next = random.randrange(self._consumers) if self._consumers > 1 else 0

    def _split_columns(self, columns: Columns, times: pa.Array | None) -> None:
        # How many they are is all that counts.
        self._split(range(len(columns[1][0])), columns, times)

    def _split(
        self, records: Sequence[Any], columns: Columns | None, times: pa.Array | None
    ) -> None:
        columns = columns or self._columns(records)
        exchange = self._channel.exchange
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
            self._deal(owners, columns, times)


class CustomEmitter(Emitter):
    """Sends each record where the user's partitioner says."""

    def __init__(
        self,
        channel: Channel,
        type_info: TypeInformation | None,
        writer: SliceWriter,
        step: str,
        moment: Moment,
        select: Callable[[Any], Any],
        partition: Callable[[Any, int], Any],
    ) -> None:
        super().__init__(channel, type_info, writer, step, moment)
        self._select = select
        self._partition = partition

    def _split(
        self, records: Sequence[Any], columns: Columns | None, times: pa.Array | None
    ) -> None:
        owners = np.fromiter(map(self._owner, records), np.int64, len(records))
        self._deal(owners, columns or self._columns(records), times)

    def _owner(self, record: Any) -> int:
        count = self._consumers
        try:
            owner = self._partition(self._select(record), count)
            if not isinstance(owner, (int, np.integer)) or not 0 <= owner < count:
                message = f"the partitioner must give a number from 0 to {count - 1}, not {owner!r}"
                raise ValueError(message)
        except (Exception, SystemExit) as error:
            fail(_PARTITION_CUSTOM, record, error)
        return int(owner)


def _in_its_key(table: KeyTable) -> Columns:
    """Return the columns of records that are their own keys."""
    return Layout.TEXT_KEY if table.plain_texts else Layout.KEY, []


def _own_key_classes(
    record_type: TypeInformation | None, key_type: TypeInformation | None
) -> frozenset[type]:
    """Return the classes whose values need not travel beside their key where they equal it.

    Decoding the key must give the value back, and encoding it must check what encoding the
    value would.
    """
    ranged = isinstance(record_type, BasicTypeInfo) and record_type.kind in INTEGER_BITS
    if ranged and record_type != key_type:
        return frozenset()
    return _classes(record_type) & _classes(key_type)


def _classes(type_info: TypeInformation | None) -> frozenset[type]:
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return frozenset({str, int, bytes})
    if isinstance(type_info, BasicTypeInfo):
        if type_info.kind is BasicType.STRING:
            return frozenset({str})
        if type_info.kind in INTEGER_BITS or type_info.kind is BasicType.BIG_INT:
            return frozenset({int})
    return frozenset()


def _take(
    columns: Columns, times: pa.Array | None, rows: npt.NDArray[np.intp], total: int
) -> tuple[Columns, pa.Array | None]:
    layout, arrays = columns
    if len(rows) == total:
        return columns, times
    indices = pa.array(rows)
    taken = layout, [a.take(indices) for a in arrays]
    return taken, None if times is None else times.take(indices)
