"""Serialization schemas and encoders of connectors."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from penstock.common.row import Row
from penstock.common.text.java_text import java_string
from penstock.common.typeinfo import TypeInformation, Types

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Serializes records for a sink.

    Called by the sink on the executor, once per record, and again for records that are written
    again after a failure.
    """

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Return the bytes of a record."""


class DeserializationSchema(ABC):
    """Deserializes the messages of a source.

    Called by the source on the executor, once per message, and again for messages that are read
    again after a failure.
    """

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Return the record of a message."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the records."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Strings in a charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        codecs.lookup(charset)
        self.charset = charset

    def serialize(self, element: str) -> bytes:
        """Encode a string."""
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        """Decode a string; invalid bytes become U+FFFD, as in Java."""
        return message.decode(self.charset, errors="replace")

    def get_produced_type(self) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Unchanged bytes."""

    def serialize(self, element: bytes) -> bytes:
        """Return the bytes."""
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """Return the bytes."""
        return message

    def get_produced_type(self) -> TypeInformation:
        """Return PRIMITIVE_ARRAY of BYTE."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which must contain bytes."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            message = f"a field index must not be negative; got {field_index}"
            raise ValueError(message)
        self.field_index = field_index

    def serialize(self, element: Row) -> bytes:
        """Return the field's bytes, empty for None."""
        value = element[self.field_index]
        return b"" if value is None else bytes(value)


class Encoder(ABC):
    """Encodes the records of a file sink."""

    @abstractmethod
    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """Return the bytes to append to the file for a record."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Create an encoder that writes each record's text as a line."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """Each record's text, and a newline."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        codecs.lookup(charset_name)
        self.charset_name = charset_name

    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """Return the record's line."""
        return (java_string(element, type_info) + "\n").encode(self.charset_name)


class BulkWriter(ABC):
    """Writes the records of one file of a bulk format.

    Created by a :class:`BulkWriterFactory` in a task; a task that fails leaves it unfinished.
    """

    @abstractmethod
    def add_element(self, element: Any) -> None:
        """Add a record; the caller may change it afterwards."""

    @abstractmethod
    def finish(self) -> None:
        """Write the remaining records and the file's end; the caller closes the file."""


class BulkWriterFactory(ABC):
    """Writes files of a bulk format for a file sink; tasks get copies of it by cloudpickle."""

    @abstractmethod
    def create(self, file: BinaryIO) -> BulkWriter:
        """Create the writer of a file, in a task."""

    @abstractmethod
    def merge(self, pieces: Sequence[Path], file: BinaryIO) -> None:
        """Write the records of finished files into a new one, in order, on the driver.

        Every micro-batch writes its own file; those between two checkpoints are merged. May be
        called again with the same pieces.
        """
