"""Serialization schemas for rows as JSON objects."""

from __future__ import annotations

from typing import Any, Self

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.format_settings import Compiled, check_row_type
from penstock.connectors.formats.json.decoder import json_decoder
from penstock.connectors.formats.json.encoder import json_encoder
from penstock.connectors.formats.json.json_schema import type_of_json_schema
from penstock.errors import ConnectorError

_NO_TYPE = "Typeinfo should be set."


class JsonRowDeserializationSchema(DeserializationSchema):
    """Reads rows from JSON objects, by the names of the fields; other fields are ignored.

    A number in quotes, or a number where a string is declared, is converted as in Flink.
    """

    def __init__(
        self, type_info: RowTypeInfo, *, fail_on_missing_field: bool, ignore_parse_errors: bool
    ) -> None:
        self._type_info = type_info
        self.ignores_parse_errors = ignore_parse_errors
        self._decode = Compiled(json_decoder, type_info, fail_on_missing_field, ignore_parse_errors)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        """Return the row; None, so that it is skipped, for parse errors that are ignored."""
        try:
            return self._decode.function(message)
        except (ValueError, RecursionError) as error:
            if self.ignores_parse_errors:
                return None
            message_text = f"Failed to deserialize JSON: {error}"
            raise ConnectorError(message_text) from error

    def get_produced_type(self) -> TypeInformation:
        """Return the row type."""
        return self._type_info

    class Builder:
        """Builds a :class:`JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeInformation) -> Self:
            """Set the fields and their types, as a row type."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> Self:
            """Set the fields and their types, as a JSON schema of an object."""
            require(json_schema is not None, "The json_schema must not be None.", TypeError)
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> Self:
            """Reject an object without one of the fields, which otherwise is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> Self:
            """Read a field that cannot be parsed as None, and skip what is not JSON."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Build the schema."""
            return JsonRowDeserializationSchema(
                check_row_type(self._type_info, _NO_TYPE),
                fail_on_missing_field=self._fail_on_missing_field,
                ignore_parse_errors=self._ignore_parse_errors,
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Writes rows as JSON objects with the names of the declared fields."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._encode = Compiled(json_encoder, type_info)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Return the object."""
        try:
            return self._encode.function(element)
        except (ValueError, TypeError, AttributeError) as error:
            message = (
                f"Could not serialize row {element!r}. "
                f"Make sure that the schema matches the input: {error}"
            )
            raise ConnectorError(message) from error

    class Builder:
        """Builds a :class:`JsonRowSerializationSchema`."""

        _type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> Self:
            """Set the fields and their types, as a row type."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Build the schema."""
            return JsonRowSerializationSchema(check_row_type(self._type_info, _NO_TYPE))
