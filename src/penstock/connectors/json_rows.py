"""Rows as JSON objects."""

from __future__ import annotations

from typing import Any, Self

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.json_decoding import JsonDecoder, json_decoder
from penstock.connectors.json_encoding import JsonEncoder, json_encoder
from penstock.connectors.json_schema_types import type_of_json_schema
from penstock.errors import ConnectorError, InvalidJobError

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


class JsonRowDeserializationSchema(DeserializationSchema):
    """Rows out of JSON objects, by the names of the fields; other fields are left alone.

    A number in quotes, or a number where a string is declared, is taken for what is meant, as in
    Flink.
    """

    def __init__(
        self, type_info: RowTypeInfo, *, fail_on_missing_field: bool, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self._fail_on_missing_field = fail_on_missing_field
        self.ignores_parse_errors = ignore_parse_errors
        self._decode: JsonDecoder | None = None
        self._make()

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Begin to describe a schema."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        """Return the row; None, so that it is left out, for parse errors that are ignored."""
        decode = self._decode or self._make()
        try:
            return decode(message)
        except (ValueError, RecursionError) as error:
            if self.ignores_parse_errors:
                return None
            message_text = f"Failed to deserialize JSON: {error}"
            raise ConnectorError(message_text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decode": None}

    def _make(self) -> JsonDecoder:
        self._decode = json_decoder(
            self._type_info,
            fail_on_missing_field=self._fail_on_missing_field,
            ignore_parse_errors=self.ignores_parse_errors,
        )
        return self._decode

    class Builder:
        """Describes a :class:`JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeInformation) -> Self:
            """Name the fields and their types, as a row type."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> Self:
            """Take fields and types out of a JSON schema of an object."""
            if json_schema is None:
                message = "The json_schema must not be None."
                raise TypeError(message)
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> Self:
            """Refuse an object that lacks a field, which is None otherwise."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> Self:
            """Make None of a field that cannot be parsed, and leave out what is no JSON."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Make the schema."""
            return JsonRowDeserializationSchema(
                _row_type(self._type_info),
                fail_on_missing_field=self._fail_on_missing_field,
                ignore_parse_errors=self._ignore_parse_errors,
            )


class JsonRowSerializationSchema(SerializationSchema):
    """JSON objects out of rows, with the names of the declared fields."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type_info = type_info
        self._encode: JsonEncoder | None = None
        self._make()

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Begin to describe a schema."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Return the object."""
        encode = self._encode or self._make()
        try:
            return encode(element)
        except (ValueError, TypeError, AttributeError) as error:
            message = (
                f"Could not serialize row {element!r}. "
                f"Make sure that the schema matches the input: {error}"
            )
            raise ConnectorError(message) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encode": None}

    def _make(self) -> JsonEncoder:
        self._encode = json_encoder(self._type_info)
        return self._encode

    class Builder:
        """Describes a :class:`JsonRowSerializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> Self:
            """Name the fields and their types, as a row type."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Make the schema."""
            return JsonRowSerializationSchema(_row_type(self._type_info))


def _row_type(type_info: TypeInformation | None) -> RowTypeInfo:
    if type_info is None:
        message = "Typeinfo should be set."
        raise TypeError(message)
    if not isinstance(type_info, RowTypeInfo):
        message = f"JSON rows need a row type such as Types.ROW_NAMED(…); got {type_info!r}"
        raise InvalidJobError(message)
    return type_info
