"""Configuration options: a key with the kind and default of its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.common.config.option_kinds import BOOLEAN, FLOAT, INTEGER, STRING, OptionKind
from penstock.common.configuration import Configuration
from penstock.errors import OptionValueError

__all__ = ["ConfigOption", "ConfigOptions", "read"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ConfigOption(Generic[T_co]):
    """A configuration key; ``fallback_keys`` are older names read when the key is not set."""

    key: str
    kind: OptionKind[T_co]
    default: T_co
    description: str = ""
    fallback_keys: tuple[str, ...] = ()


def read(configuration: Configuration, option: ConfigOption[T]) -> T:
    """Return the value of an option, its default if it is not set.

    Raises:
        OptionValueError: the value is not of the option's kind.
    """
    for key in (option.key, *option.fallback_keys):
        if configuration.contains_key(key):
            return parse(key, option, configuration.get(key))
    return option.default


def parse(key: str, option: ConfigOption[T], value: object) -> T:
    """Convert a value stored under one of the option's keys."""
    try:
        return option.kind.parse(value)
    except (ValueError, OverflowError) as error:
        raise OptionValueError(key, value, option.kind.expected) from error


class ConfigOptions:
    """Builds options: ``ConfigOptions.key("a").int_type().default_value(1)``."""

    @staticmethod
    def key(key: str) -> OptionBuilder:
        """Create a builder."""
        return OptionBuilder(key)


@dataclass(frozen=True, slots=True)
class OptionBuilder:
    """Builds an option: its kind."""

    key: str

    def boolean_type(self) -> TypedConfigOptionBuilder[bool]:
        """Use booleans."""
        return TypedConfigOptionBuilder(self.key, BOOLEAN)

    def int_type(self) -> TypedConfigOptionBuilder[int]:
        """Use integers."""
        return TypedConfigOptionBuilder(self.key, INTEGER)

    def long_type(self) -> TypedConfigOptionBuilder[int]:
        """Use integers."""
        return TypedConfigOptionBuilder(self.key, INTEGER)

    def float_type(self) -> TypedConfigOptionBuilder[float]:
        """Use floating-point numbers."""
        return TypedConfigOptionBuilder(self.key, FLOAT)

    def double_type(self) -> TypedConfigOptionBuilder[float]:
        """Use floating-point numbers."""
        return TypedConfigOptionBuilder(self.key, FLOAT)

    def string_type(self) -> TypedConfigOptionBuilder[str]:
        """Use strings."""
        return TypedConfigOptionBuilder(self.key, STRING)


@dataclass(frozen=True, slots=True)
class TypedConfigOptionBuilder(Generic[T_co]):
    """Builds an option: its default."""

    key: str
    kind: OptionKind[T_co]

    def default_value(self, value: T_co) -> ConfigOption[T_co]:  # type: ignore[misc]
        """Create the option with a default."""
        return ConfigOption(self.key, self.kind, value)

    def no_default_value(self) -> ConfigOption[T_co | None]:
        """Create the option without a default."""
        return ConfigOption(self.key, self.kind, None)
