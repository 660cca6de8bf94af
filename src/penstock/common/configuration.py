"""The configuration of a program: key-value pairs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from penstock.common.config.option_kinds import BOOLEAN, FLOAT, INTEGER, STRING, OptionKind
from penstock.errors import OptionValueError
from penstock.redaction import redact_value

__all__ = ["Configuration"]

T = TypeVar("T")


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


class Configuration:
    """A set of options; nothing is checked before a job is built.

    Values keep the type they were set with and are converted when they are read as another one.
    """

    __slots__ = ("_values",)

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, object] = dict(other._values) if other is not None else {}

    @classmethod
    def from_dict(cls, map: Mapping[str, object]) -> Configuration:  # noqa: A002 PyFlink's name
        """Create a configuration of these pairs."""
        configuration = cls()
        configuration._values.update(map)
        return configuration

    def get(self, option: str | _Keyed, default_value: Any = None) -> Any:
        """Return the value of a key, unconverted."""
        return self._values.get(_key(option), default_value)

    def set(self, option: str | _Keyed, value: object) -> Configuration:
        """Set a value of any type."""
        self._values[_key(option)] = value
        return self

    def get_string(self, key: str, default_value: str) -> str:
        """Return the value of a key as a string."""
        return self._read(key, STRING, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a string."""
        return self.set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the value of a key as an integer."""
        return self._read(key, INTEGER, default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set an integer."""
        return self.set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the value of a key as a boolean."""
        return self._read(key, BOOLEAN, default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a boolean."""
        return self.set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Return the value of a key as a float."""
        return self._read(key, FLOAT, float(default_value))

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a float."""
        return self.set(key, float(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return the value of a key as bytes."""
        return self._read(key, _BYTES, default_value)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes."""
        return self.set(key, bytes(value))

    def key_set(self) -> builtins.set[str]:
        """Return all keys."""
        return builtins.set(self._values)

    def contains_key(self, key: str) -> bool:
        """Tell whether a key is set."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a key; return whether it was set."""
        if key not in self._values:
            return False
        del self._values[key]
        return True

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add all pairs of another configuration, with an optional prefix of the keys."""
        for key, value in other._values.items():
            self._values[(prefix or "") + key] = value
        return self

    def add_all_to_dict(self, target_dict: MutableMapping[str, Any]) -> None:
        """Add all pairs to a dict, unconverted."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Return all pairs as strings."""
        return {key: STRING.parse(value) for key, value in self._values.items()}

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """Parse a list: ``a;b``, or ``[a, b]`` as in YAML."""
        text = (value or "").strip()
        if text.startswith("[") and text.endswith("]"):
            items = text[1:-1].split(",")
            return [item.strip().strip("'\"") for item in items if item.strip()]
        return text.split(";") if text else []

    def _read(self, key: str, kind: OptionKind[T], default: T) -> T:
        if key not in self._values:
            return default
        value = self._values[key]
        try:
            return kind.parse(value)
        except ValueError as error:
            raise OptionValueError(key, value, kind.expected) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        pairs = (f"{key}={value}" for key, value in redact_value(self.to_dict()).items())
        return f"{{{', '.join(pairs)}}}"

    def __repr__(self) -> str:
        return f"Configuration({redact_value(self._values)!r})"


def _key(option: str | _Keyed) -> str:
    return option if isinstance(option, str) else option.key


def _parse_bytes(value: object) -> bytearray:
    if not isinstance(value, bytes | bytearray):
        raise ValueError(value)
    return bytearray(value)


_BYTES = OptionKind("bytes", _parse_bytes)
