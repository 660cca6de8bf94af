"""What the formats share: checks of builder arguments, and functions compiled from settings."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.common.configuration import Configuration
from penstock.common.typeinfo import RowTypeInfo
from penstock.connectors.contracts.builder_checks import require
from penstock.errors import InvalidJobError

T = TypeVar("T")


class Compiled(Generic[T]):
    """A ``function`` that ``build`` makes out of picklable arguments, anew in every process."""

    __slots__ = ("_arguments", "_build", "function")

    def __init__(self, build: Callable[..., T], *arguments: Any) -> None:
        self._build = build
        self._arguments = arguments
        self.function = build(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self._build, *self._arguments)


def check_instance(value: Any, expected: type[T], what: str) -> T:
    """Return a value of the expected class; ``what`` starts the message for any other value."""
    if not isinstance(value, expected):
        message = f"{what}; got {value!r}"
        raise TypeError(message)
    return value


def check_row_type(type_info: Any, if_none: str) -> RowTypeInfo:
    """Return a row type; reject None with a message of its own, as PyFlink does."""
    require(type_info is not None, if_none, TypeError)
    if not isinstance(type_info, RowTypeInfo):
        message = f"Row type information expected, such as Types.ROW_NAMED(…); got {type_info!r}"
        raise InvalidJobError(message)
    return type_info


def check_character(what: str, text: str) -> str:
    """Return a text of one character."""
    require(isinstance(text, str) and len(text) == 1, f"a {what} is one character; got {text!r}")
    return text


def codec_setting(
    key: str, default: str, codecs: dict[str, str], *configurations: Configuration | None
) -> str:
    """Return the codec that configurations name under a key; they may set nothing else."""
    settings = dict(ChainMap(*(c.to_dict() for c in reversed(configurations) if c is not None)))
    name = settings.pop(key, default)
    known, got = ", ".join(codecs).upper(), sorted(settings) or name
    message = f"the only supported setting is {key}, one of {known}; got {got!r}"
    require(not settings and name.lower() in codecs, message)
    return codecs[name.lower()]
