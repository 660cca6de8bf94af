"""How far apart two records are, for triggers and evictors that go by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

__all__ = ["DeltaFunction"]

T = TypeVar("T")


class DeltaFunction(ABC, Generic[T]):
    """Measures how far a record is from an older one. Java's; PyFlink has none."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return the distance."""
