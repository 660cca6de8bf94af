"""What a source or sink needs on the driver only: passwords do not travel to the tasks."""

from __future__ import annotations

import uuid
from typing import Generic, TypeVar

__all__ = ["KeptHome"]

T = TypeVar("T")

_here: dict[str, object] = {}
"""What was sent off from this process, for copies that never left it."""


class KeptHome(Generic[T]):
    """Holds a value that stays in its process: a pickled copy is empty in any other one.

    In the same process a copy holds it again, which is what an engine without Spark needs.
    """

    __slots__ = ("_token", "_values")

    def __init__(self, value: T) -> None:
        self._token = uuid.uuid4().hex
        self._values = (value,)

    def get(self) -> T:
        """Return the value."""
        if not self._values:
            message = "this part of a source or sink stays where the job was built"
            raise RuntimeError(message)
        return self._values[0]

    def __reduce__(self) -> tuple[object, tuple[str]]:
        _here[self._token] = self
        return _copy, (self._token,)

    def __repr__(self) -> str:
        return "KeptHome()"


def _copy(token: str) -> object:
    if token in _here:
        return _here[token]
    empty: KeptHome[object] = KeptHome(None)
    empty._values = ()  # type: ignore[assignment]
    return empty
