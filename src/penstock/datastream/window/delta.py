"""The distance of two records, for delta triggers and evictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

__all__ = ["DeltaFunction"]

T = TypeVar("T")


class DeltaFunction(ABC, Generic[T]):
    """Computes the distance of a record from an older one. Not in PyFlink."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return the distance."""
