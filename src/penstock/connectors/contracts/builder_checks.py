"""Checks of what a user passes to the builders of sources and sinks."""

from __future__ import annotations

from penstock.errors import InvalidJobError


def require(condition: object, message: str, error: type[Exception] = InvalidJobError) -> None:
    """Raise an error with this message unless a condition holds."""
    if not condition:
        raise error(message)


def require_text(name: str, value: str) -> str:
    """Return a value, or raise a TypeError that names it if it is not a string."""
    require(isinstance(value, str), f"{name} must be a string; got {value!r}", TypeError)
    return value
