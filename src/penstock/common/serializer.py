"""Custom serializers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Serializes values of one type, such as custom windows.

    Two serializers of one class with the same attributes are equal.
    """

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write a value to a stream."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read the next value from a stream."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
