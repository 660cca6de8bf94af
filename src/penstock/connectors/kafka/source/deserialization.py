"""Deserialization schemas for Kafka records: the value alone, or a row of chosen fields.

Records arrive as Arrow columns named as by Spark's Kafka reader, so that both ways of reading
share one decoder.
"""
# ruff: noqa: D102 - the abstract class documents the methods

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.common.row import rows_of
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SimpleStringSchema,
)
from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.input_settings import InputSettings
from penstock.connectors.contracts.source import TimestampedChunk
from penstock.connectors.kafka.partitions import KafkaTopicPartition
from penstock.errors import InvalidJobError, PenstockError, UndecodableRecordError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_SCHEMA_FIELDS = ("key", "value")
_FIELD_TYPES: dict[str, TypeInformation] = {
    "topic": Types.STRING(),
    "partition": Types.INT(),
    "offset": Types.LONG(),
    "timestamp": Types.LONG(),
    "headers": Types.LIST(Types.TUPLE([Types.STRING(), _BYTES])),
}
_TOMBSTONE = "it has no value; KafkaRecordDeserializationSchema.fields() shows such records"


class KafkaRecordDeserializationSchema(ABC):
    """Converts Kafka records into records of a stream, in the tasks."""

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Deserialize the value with ``schema``; records it returns None for are dropped."""
        return ValueOnly(_checked("value", schema))

    @staticmethod
    def fields(
        *names: str,
        key: DeserializationSchema | None = None,
        value: DeserializationSchema | None = None,
    ) -> KafkaRecordDeserializationSchema:
        """Return rows of the named fields.

        Fields are ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp`` (in
        milliseconds) and ``headers`` (a list of names and bytes). Key and value are bytes
        unless a schema decodes them, and None where the record has none.
        """
        known = (*_SCHEMA_FIELDS, *_FIELD_TYPES)
        unknown = [name for name in names if name not in known]
        message = (
            f"fields() takes distinct names out of {', '.join(known)}; "
            f"got {', '.join(map(repr, names)) or 'none'}"
        )
        require(names and not unknown and len(set(names)) == len(names), message)
        schemas: dict[str, DeserializationSchema] = {}
        for part, schema in zip(_SCHEMA_FIELDS, (key, value), strict=True):
            if part in names:
                schemas[part] = _checked(part, schema or ByteArraySchema())
            elif schema is not None:
                message = f"a schema for the {part} needs the field {part!r}; got {names!r}"
                raise InvalidJobError(message)
        return Fields(names, schemas)

    @abstractmethod
    def type_info(self) -> TypeInformation:
        """Return the type of the records."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the columns to read."""

    @abstractmethod
    def may_refuse_records(self) -> bool:
        """Return whether decoding may fail, so that errors need partition and offset."""

    @abstractmethod
    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        """Decode the rows of a batch; fewer records if some are dropped."""


class ValueOnly(KafkaRecordDeserializationSchema):
    """Deserializes the value alone."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def type_info(self) -> TypeInformation:
        return self._schema.get_produced_type()

    def columns(self) -> tuple[str, ...]:
        return ("value",)

    def may_refuse_records(self) -> bool:
        return not _takes_anything(self._schema)

    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        records = _decoded(self._schema, batch, "value", topic, nulls=False)
        if _takes_anything(self._schema):
            return records
        return [record for record in records if record is not None]


class Fields(KafkaRecordDeserializationSchema):
    """Deserializes chosen fields into a row."""

    def __init__(self, names: tuple[str, ...], schemas: dict[str, DeserializationSchema]) -> None:
        self._names = names
        self._schemas = schemas

    def type_info(self) -> TypeInformation:
        produced = {name: schema.get_produced_type() for name, schema in self._schemas.items()}
        types = {**_FIELD_TYPES, **produced}
        return Types.ROW_NAMED(self._names, [types[name] for name in self._names])

    def columns(self) -> tuple[str, ...]:
        return self._names

    def may_refuse_records(self) -> bool:
        return not all(map(_takes_anything, self._schemas.values()))

    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        rows = rows_of(self._names, [self._column(name, batch, topic) for name in self._names])
        if not self.may_refuse_records():
            return rows
        return [row for row in rows if not any(value is _Dropped for value in row)]

    def _column(self, name: str, batch: pa.RecordBatch, topic: str) -> list[Any]:
        column = batch.column(name)
        if name in self._schemas:
            values = _decoded(self._schemas[name], batch, name, topic)
            if _takes_anything(self._schemas[name]):
                return values
            messages = zip(values, column.is_valid().to_pylist(), strict=True)
            return [_Dropped if v is None and valid else v for v, valid in messages]
        if name == "timestamp":
            return _milliseconds(column)
        if name == "headers":
            return [[(h["key"], h["value"]) for h in row or ()] for row in column.to_pylist()]
        return column.to_pylist()  # type: ignore[no-any-return]


class _Dropped:
    """Marks a field for which a schema returned None: the record is dropped."""


def _checked(part: str, schema: DeserializationSchema) -> DeserializationSchema:
    message = (
        f"the {part} needs a DeserializationSchema such as SimpleStringSchema(); got {schema!r}"
    )
    require(isinstance(schema, DeserializationSchema), message)
    return schema


def _takes_anything(schema: DeserializationSchema) -> bool:
    return type(schema) in (SimpleStringSchema, ByteArraySchema)


def _decoded(
    schema: DeserializationSchema,
    batch: pa.RecordBatch,
    name: str,
    topic: str,
    *,
    nulls: bool = True,
) -> list[Any]:
    """Decode a column of bytes; nulls stay None, or are rejected."""
    column = batch.column(name)
    if column.null_count and not nulls:
        return _each(_refusing_none(schema), column.to_pylist(), batch, topic)
    if type(schema) is ByteArraySchema:
        return column.to_pylist()  # type: ignore[no-any-return]
    if type(schema) is SimpleStringSchema and codecs.lookup(schema.charset).name == "utf-8":
        return _strings(column)
    decode: Callable[[Any], Any] = schema.deserialize
    if column.null_count:
        decode = lambda message: None if message is None else schema.deserialize(message)  # noqa: E731
    return _each(decode, column.to_pylist(), batch, topic)


def _each(
    decode: Callable[[Any], Any], messages: list[Any], batch: pa.RecordBatch, topic: str
) -> list[Any]:
    records: list[Any] = []
    take = records.append
    try:
        for message in messages:
            take(decode(message))
    except Exception as error:
        index = len(records)
        reason = str(error) if isinstance(error, PenstockError | ValueError) else repr(error)
        place = _place(batch, index, topic)
        raise UndecodableRecordError(*place, messages[index], reason) from error
    return records


def _place(batch: pa.RecordBatch, index: int, topic: str) -> tuple[str, int | None, int | None]:
    there = {
        name: batch.column(name)[index].as_py()
        for name in ("topic", "partition", "offset")
        if name in batch.schema.names
    }
    return there.get("topic", topic), there.get("partition"), there.get("offset")


def _refusing_none(schema: DeserializationSchema) -> Callable[[Any], Any]:
    def decode(message: bytes | None) -> Any:
        if message is not None:
            return schema.deserialize(message)
        if getattr(schema, "ignores_parse_errors", False):
            return None
        raise ValueError(_TOMBSTONE)

    return decode


def _strings(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    try:
        kind = pa.large_string() if pa.types.is_large_binary(column.type) else pa.string()
        return column.cast(kind).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        return [
            None if message is None else message.decode("utf-8", errors="replace")
            for message in column.to_pylist()
        ]


def _milliseconds(column: pa.Array) -> list[int]:
    import pyarrow as pa

    microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return (microseconds.to_numpy(zero_copy_only=False) // 1000).tolist()  # type: ignore[no-any-return]


def checked_batch(batch: pa.RecordBatch, settings: InputSettings, topic: str) -> pa.RecordBatch:
    """Return a batch; raise `InputTooLargeError` if a key or value is above the limit."""
    import pyarrow.compute as pc

    for name in {"key", "value"} & set(batch.schema.names):
        column = batch.column(name)
        # Nearly always true: then no record has to be measured.
        if column.nbytes <= settings.max_record_bytes:
            continue
        largest = pc.max(pc.binary_length(column)).as_py() or 0
        if largest > settings.max_record_bytes:
            what = f"a {name} of {largest} bytes from topic {topic}"
            raise settings.record_too_large(what)
    return batch


def decode_with_timestamps(
    schema: KafkaRecordDeserializationSchema, batch: pa.RecordBatch
) -> Iterator[TimestampedChunk]:
    """Decode a batch that has topic, partition and timestamp, into a chunk per partition.

    Timestamps are ordered within a partition only, so each partition has its own watermarks.
    """
    for partition, part in _by_partition(batch):
        records = schema.decode(part, partition.topic)
        times = _milliseconds(part.column("timestamp"))
        if len(records) != len(times):
            # Some were dropped; only decoding one by one shows which.
            decoded = [schema.decode(part.slice(i, 1), partition.topic) for i in range(len(times))]
            records = [record for one in decoded for record in one]
            times = [time for one, time in zip(decoded, times, strict=True) for _ in one]
        yield TimestampedChunk(str(partition), records, times)


def _by_partition(
    batch: pa.RecordBatch,
) -> Iterator[tuple[KafkaTopicPartition, pa.RecordBatch]]:
    import pyarrow.compute as pc

    topics, numbers = batch.column("topic"), batch.column("partition")
    for topic in pc.unique(topics).to_pylist():
        of_topic = pc.equal(topics, topic)
        for number in pc.unique(numbers.filter(of_topic)).to_pylist():
            rows = pc.and_(of_topic, pc.equal(numbers, number))
            yield KafkaTopicPartition(topic, number), batch.filter(rows)
