"""What becomes of Kafka's records: a value each, or a row of the parts one chooses.

Records come as Arrow columns under the names Spark's Kafka reader gives them, whoever read
them, so that both ways of reading decode alike.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.common.row import Row
from penstock.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SimpleStringSchema,
)
from penstock.common.typeinfo import TypeInformation, Types
from penstock.errors import InvalidJobError, PenstockError, UndecodableRecordError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KafkaRecordDeserializationSchema", "milliseconds"]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_FIELD_TYPES: dict[str, TypeInformation | None] = {
    "key": None,
    "value": None,
    "topic": Types.STRING(),
    "partition": Types.INT(),
    "offset": Types.LONG(),
    "timestamp": Types.LONG(),
    "headers": Types.LIST(Types.TUPLE([Types.STRING(), _BYTES])),
}
_TOMBSTONE = "it has no value; KafkaRecordDeserializationSchema.fields() shows such records"


class KafkaRecordDeserializationSchema(ABC):
    """Turns records of Kafka into records of a stream, in the tasks."""

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Give what ``schema`` makes of the value; what it makes None of is left out."""
        return ValueOnly(_checked("value", schema))

    @staticmethod
    def fields(
        *names: str,
        key: DeserializationSchema | None = None,
        value: DeserializationSchema | None = None,
    ) -> KafkaRecordDeserializationSchema:
        """Give rows of the named parts.

        Parts are ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp`` (in
        milliseconds) and ``headers`` (a list of names and bytes). Key and value are bytes
        unless a schema decodes them, and None where the record has none.
        """
        unknown = [name for name in names if name not in _FIELD_TYPES]
        if not names or unknown or len(set(names)) != len(names):
            message = (
                f"fields() takes names out of {', '.join(_FIELD_TYPES)}, each once; "
                f"got {', '.join(map(repr, names)) or 'none'}"
            )
            raise InvalidJobError(message)
        for part, schema in (("key", key), ("value", value)):
            if schema is not None and part not in names:
                message = f"a schema for the {part} needs the field {part!r}; got {names!r}"
                raise InvalidJobError(message)
        schemas = {
            part: _checked(part, schema or ByteArraySchema())
            for part, schema in (("key", key), ("value", value))
            if part in names
        }
        return Fields(names, schemas)

    @abstractmethod
    def type_info(self) -> TypeInformation:
        """Tell the type of the records."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Name the columns to decode."""

    @abstractmethod
    def places_needed(self) -> bool:
        """Tell whether a record may be refused, so that its place must be known."""

    @abstractmethod
    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        """Make records of the rows of a batch, fewer if some are left out."""


class ValueOnly(KafkaRecordDeserializationSchema):
    """The value alone."""

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def type_info(self) -> TypeInformation:
        return self._schema.get_produced_type()

    def columns(self) -> tuple[str, ...]:
        return ("value",)

    def places_needed(self) -> bool:
        return not _takes_anything(self._schema)

    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        records = _decoded(self._schema, batch, "value", topic, nulls=False)
        if _takes_anything(self._schema):
            return records
        return [record for record in records if record is not None]


class Fields(KafkaRecordDeserializationSchema):
    """A row of chosen parts."""

    def __init__(self, names: tuple[str, ...], schemas: dict[str, DeserializationSchema]) -> None:
        self._names = names
        self._schemas = schemas

    def type_info(self) -> TypeInformation:
        types = [
            self._schemas[name].get_produced_type() if name in self._schemas else known
            for name in self._names
            if (known := _FIELD_TYPES[name]) is not None or name in self._schemas
        ]
        return Types.ROW_NAMED(self._names, [kind for kind in types if kind is not None])

    def columns(self) -> tuple[str, ...]:
        return self._names

    def places_needed(self) -> bool:
        return not all(map(_takes_anything, self._schemas.values()))

    def decode(self, batch: pa.RecordBatch, topic: str) -> list[Any]:
        columns = [self._column(name, batch, topic) for name in self._names]
        names = list(self._names)
        rows = zip(*columns, strict=True)
        if not self.places_needed():
            return [_row(names, values) for values in rows]
        return [_row(names, values) for values in rows if not any(v is _Unwanted for v in values)]

    def _column(self, name: str, batch: pa.RecordBatch, topic: str) -> list[Any]:
        column = batch.column(name)
        if name in self._schemas:
            values = _decoded(self._schemas[name], batch, name, topic)
            if _takes_anything(self._schemas[name]):
                return values
            messages = zip(values, column.is_valid().to_pylist(), strict=True)
            return [_Unwanted if v is None and there else v for v, there in messages]
        if name == "timestamp":
            return milliseconds(column)
        if name == "headers":
            return [_pairs(headers) for headers in column.to_pylist()]
        return column.to_pylist()  # type: ignore[no-any-return]


class _Unwanted:
    """Stands where a schema made nothing of some bytes: the record is left out."""


def _checked(part: str, schema: Any) -> DeserializationSchema:
    if not isinstance(schema, DeserializationSchema):
        message = (
            f"the {part} needs a DeserializationSchema such as SimpleStringSchema(); got {schema!r}"
        )
        raise InvalidJobError(message)
    return schema


def _takes_anything(schema: DeserializationSchema) -> bool:
    return type(schema) in (SimpleStringSchema, ByteArraySchema)


def _is_utf8(schema: DeserializationSchema) -> bool:
    return type(schema) is SimpleStringSchema and codecs.lookup(schema.charset).name == "utf-8"


def _decoded(
    schema: DeserializationSchema,
    batch: pa.RecordBatch,
    name: str,
    topic: str,
    *,
    nulls: bool = True,
) -> list[Any]:
    """Decode a column of bytes; nulls stay None, or are refused."""
    column = batch.column(name)
    if column.null_count and not nulls:
        return _each(_refusing_none(schema), column.to_pylist(), batch, topic)
    if type(schema) is ByteArraySchema:
        return column.to_pylist()  # type: ignore[no-any-return]
    if _is_utf8(schema):
        return _strings(column)
    decode = schema.deserialize if not column.null_count else _passing_none(schema.deserialize)
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


def _passing_none(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda message: None if message is None else decode(message)


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


def milliseconds(column: pa.Array) -> list[int]:
    """Return timestamps as milliseconds since the epoch."""
    import pyarrow as pa

    microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return (microseconds.to_numpy(zero_copy_only=False) // 1000).tolist()  # type: ignore[no-any-return]


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(header["key"], header["value"]) for header in headers or ()]


def _row(names: list[str], values: tuple[Any, ...]) -> Row:
    row = Row(*values)
    row.set_field_names(names)
    return row
