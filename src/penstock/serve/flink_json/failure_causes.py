"""Failures as Flink's clients read them: with a Java exception, serialized.

Flink's Java client rebuilds the exception from `serialized-throwable`, and fails without it. The
bytes are Java's object serialization of a `SerializedThrowable` that has a message and no cause.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

_HEADER = b"\xac\xed\x00\x05"
_OBJECT, _CLASS, _NULL, _STRING, _LONG_STRING, _END = b"s", b"r", b"p", b"t", b"|", b"x"
_SERIALIZABLE = b"\x02"
_CLASSES = (
    # From the class itself up: its name, its serialVersionUID, its fields that are written.
    (
        "org.apache.flink.util.SerializedThrowable",
        7284183123441947635,
        ("fullStringifiedStackTrace", "originalErrorClassName"),
    ),
    ("java.lang.Exception", -3387516993124229948, ()),
    ("java.lang.Throwable", -3042686055658047285, ("detailMessage",)),
)
_ERROR = "penstock.errors.PenstockError"


def failure_cause(message: str, traceback: str = "") -> dict[str, Any]:
    """Return a failure in the form of Flink's answers."""
    trace = traceback or message
    return {
        "class": _ERROR,
        "stack-trace": trace,
        "serialized-throwable": base64.b64encode(serialized_throwable(message, trace)).decode(),
    }


def serialized_throwable(message: str, trace: str) -> bytes:
    """Return a `SerializedThrowable` as a Java program would write it."""
    values = {
        "detailMessage": message,
        "fullStringifiedStackTrace": trace,
        "originalErrorClassName": _ERROR,
    }
    described = b"".join(_class(name, uid, fields) for name, uid, fields in _CLASSES) + _NULL
    written = [values[field] for *_, fields in reversed(_CLASSES) for field in fields]
    return _HEADER + _OBJECT + described + b"".join(_text(value) for value in written)


def _class(name: str, uid: int, fields: tuple[str, ...]) -> bytes:
    described = b"".join(
        b"L" + _utf(field) + _STRING + _utf("Ljava/lang/String;") for field in fields
    )
    count = struct.pack(">H", len(fields))
    head = _CLASS + _utf(name) + struct.pack(">q", uid) + _SERIALIZABLE
    return head + count + described + _END


def _text(value: str) -> bytes:
    data = _modified_utf8(value)
    if len(data) > 0xFFFF:
        return _LONG_STRING + struct.pack(">Q", len(data)) + data
    return _STRING + struct.pack(">H", len(data)) + data


def _utf(value: str) -> bytes:
    data = _modified_utf8(value)
    return struct.pack(">H", len(data)) + data


def _modified_utf8(value: str) -> bytes:
    """Return text as Java writes it: code units, each in UTF-8 of its own, and no zero bytes."""
    units = value.encode("utf-16-be", "surrogatepass")
    found = (chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    return b"".join(
        b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass") for unit in found
    )
