"""What a user gives the builder: refused in one sentence if it is of the wrong kind."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.errors import InvalidJobError

__all__ = ["given_count", "given_names", "given_one", "given_text"]

T = TypeVar("T")


def given_text(method: str, given: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(given, str) or not given:
        raise _refused(method, "a text", given)
    return given


def given_names(method: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Return distinct names, one at least."""
    is_named = all(isinstance(name, str) and name for name in given)
    if not given or not is_named or len(set(given)) != len(given):
        shown = ", ".join(map(repr, given)) or "nothing"
        message = f"{method}() needs distinct names, as in {method}('id', 'name'); got {shown}"
        raise InvalidJobError(message)
    return given


def given_count(method: str, given: Any) -> int:
    """Return a whole number that is not negative."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise _refused(method, "a whole number, 0 or more", given)
    return given


def given_one(method: str, kind: type[T], needed: str, given: Any) -> T:
    """Return an instance of a class."""
    if not isinstance(given, kind):
        raise _refused(method, needed, given)
    return given


def _refused(method: str, needed: str, given: Any) -> InvalidJobError:
    return InvalidJobError(f"{method}() needs {needed}; got {given!r}")
