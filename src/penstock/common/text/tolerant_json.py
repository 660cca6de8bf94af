"""JSON files that may be damaged, or hold text that is not valid Unicode.

Exception messages and command-line arguments may contain lone surrogates, which UTF-8 cannot
represent. Files that other processes write may contain anything.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode_json(value: object) -> bytes:
    r"""Return a value as JSON; a lone surrogate becomes its escape, such as `\udc80`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_representable(msgspec.to_builtins(value)))


def decode_json(data: bytes, kind: type[T]) -> T:
    """Return the value in a JSON file.

    Raises:
        msgspec.DecodeError: if it cannot be decoded, for whatever reason.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from error


def representable(text: str) -> str:
    """Return text that UTF-8 can represent: with escapes in the place of lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _representable(value: Any) -> Any:
    match value:
        case str():
            return representable(value)
        case dict():
            return {_representable(key): _representable(item) for key, item in value.items()}
        case list() | tuple():
            return [_representable(item) for item in value]
    return value
