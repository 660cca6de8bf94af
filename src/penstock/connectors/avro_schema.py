"""Avro schemas, and records that have one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common.typeinfo import PickledBytesTypeInfo
from penstock.errors import InvalidJobError, RuntimeSetupError

__all__ = ["AvroSchema", "GenericRecordAvroTypeInfo", "fastavro", "record_schema"]


def fastavro() -> Any:
    """Import the Avro library of the extra ``avro``."""
    try:
        import fastavro
        import fastavro.schema
        import fastavro.validation
        import fastavro.write
    except ImportError as error:
        message = "Avro needs fastavro on driver and workers: pip install 'penstock[avro]'"
        raise RuntimeSetupError(message) from error
    return fastavro


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema in JSON; one that is none is refused where it is given."""

    text: str

    def __post_init__(self) -> None:
        library = fastavro()
        try:
            library.parse_schema(json.loads(self.text))
        except (ValueError, TypeError, KeyError, library.schema.SchemaParseException) as error:
            message = f"no Avro schema: {type(error).__name__}: {error}; got {self.text!r}"
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
        """Return the schema as fastavro wants it."""
        return fastavro().parse_schema(json.loads(self.text))

    def expanded(self) -> Any:
        """Return the schema with names of types replaced by what they stand for."""
        return fastavro().schema.expand_schema(json.loads(self.text))

    def __str__(self) -> str:
        return self.text


def record_schema(schema: AvroSchema) -> AvroSchema:
    """Refuse what is no schema of records."""
    if not isinstance(schema, AvroSchema):
        message = f"an AvroSchema.parse_string(…) is expected; got {schema!r}"
        raise TypeError(message)
    kind = json.loads(schema.text)
    if not isinstance(kind, dict) or kind.get("type") != "record":
        message = f"an Avro schema of records is expected; got {schema.text}"
        raise InvalidJobError(message)
    return schema


@dataclass(frozen=True, slots=True, repr=False)
class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of an Avro schema, which are plain dicts; between steps they are pickled."""

    schema: AvroSchema

    def __repr__(self) -> str:
        return f"GenericRecord({self.schema.text!r})"
