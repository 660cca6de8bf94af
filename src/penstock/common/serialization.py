"""How records become bytes outside of penstock, and bytes records."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from typing import Any

from penstock.common.java_text import java_string
from penstock.common.row import Row
from penstock.common.typeinfo import TypeInformation, Types

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Turns records into bytes for a sink.

    Called by the sink on the executor, once per record and again for records written anew
    after a failure.
    """

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Return the bytes of a record."""


class DeserializationSchema(ABC):
    """Turns the bytes a source delivers into records.

    Called by the source on the executor, once per message and again for messages read anew
    after a failure.
    """

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Return the record a message holds."""

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
        """Decode a string; what is no text in the charset becomes U+FFFD, as in Java."""
        return message.decode(self.charset, errors="replace")

    def get_produced_type(self) -> TypeInformation:
        """Return STRING."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

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
    """One field of a row, which must hold bytes already."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            message = f"a field index must not be negative; got {field_index}"
            raise ValueError(message)
        self.field_index = field_index

    def serialize(self, element: Row) -> bytes:
        """Return the field's bytes, none for None."""
        value = element[self.field_index]
        return b"" if value is None else bytes(value)


class Encoder(ABC):
    """Writes the records of a file sink, one after the other."""

    @abstractmethod
    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """Return the bytes to append to the file for a record."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Create an encoder that writes each record's text on a line of its own."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """Each record's text, and a newline."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        codecs.lookup(charset_name)
        self.charset_name = charset_name

    def encode(self, element: Any, type_info: TypeInformation | None) -> bytes:
        """Return the record's line."""
        return (java_string(element, type_info) + "\n").encode(self.charset_name)
