"""Avro schemas, and the type of records that have one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.formats.format_settings import check_instance
from penstock.errors import InvalidJobError, RuntimeSetupError


def fastavro() -> Any:
    """Import the Avro library of the extra ``avro``."""
    try:
        import fastavro
        import fastavro._read_py
        import fastavro.schema
        import fastavro.validation
        import fastavro.write
    except ImportError as error:
        message = "Avro needs fastavro on driver and workers: pip install '/path/to/penstock[avro]'"
        raise RuntimeSetupError(message) from error
    return fastavro


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema in JSON, validated when it is created."""

    text: str

    def __post_init__(self) -> None:
        library = fastavro()
        try:
            library.parse_schema(json.loads(self.text))
        except (ValueError, TypeError, KeyError, library.schema.SchemaParseException) as error:
            message = f"not an Avro schema: {type(error).__name__}: {error}; got {self.text!r}"
            raise InvalidJobError(message) from None

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse the schema in a file."""
        return AvroSchema(Path(file_path).read_text(encoding="utf-8"))

    def parsed(self) -> Any:
        """Return the schema as fastavro takes it."""
        return fastavro().parse_schema(json.loads(self.text))

    def expanded(self) -> Any:
        """Return the schema with named types replaced by their definitions."""
        return fastavro().schema.expand_schema(json.loads(self.text))

    def __str__(self) -> str:
        return self.text


def record_schema(schema: AvroSchema) -> AvroSchema:
    """Return a schema of records; reject any other."""
    check_instance(schema, AvroSchema, "an AvroSchema.parse_string(…) is expected")
    kind = json.loads(schema.text)
    is_record = isinstance(kind, dict) and kind.get("type") == "record"
    require(is_record, f"an Avro schema of records is expected; got {schema.text}")
    return schema


@dataclass(frozen=True, slots=True, repr=False)
class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of an Avro schema, as dicts; they are pickled between steps."""

    schema: AvroSchema

    def __repr__(self) -> str:
        return f"GenericRecord({self.schema.text!r})"
