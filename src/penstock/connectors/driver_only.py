"""Values of a source or sink that stay on the driver, such as passwords."""

from __future__ import annotations

import uuid
from typing import Generic, TypeVar

T = TypeVar("T")

_here: dict[str, object] = {}
"""The values pickled by this process, for copies that are unpickled in it."""


class DriverOnly(Generic[T]):
    """Holds a value that is not pickled: a copy in another process is empty.

    A copy in the same process holds it again, which an engine without Spark needs.
    """

    __slots__ = ("_token", "_values")

    def __init__(self, value: T) -> None:
        self._token = uuid.uuid4().hex
        self._values = (value,)

    def get(self) -> T:
        """Return the value."""
        if not self._values:
            message = "this part of a source or sink exists only in the process that built the job"
            raise RuntimeError(message)
        return self._values[0]

    def __reduce__(self) -> tuple[object, tuple[str]]:
        _here[self._token] = self
        return _copy, (self._token,)

    def __repr__(self) -> str:
        return "DriverOnly()"


def _copy(token: str) -> object:
    if token in _here:
        return _here[token]
    empty: DriverOnly[object] = DriverOnly(None)
    empty._values = ()  # type: ignore[assignment]
    return empty
