"""The identity of a job."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

__all__ = ["JobID"]


@dataclass(frozen=True, slots=True)
class JobID:
    """Identifies one submitted job: 32 hexadecimal digits."""

    hex: str

    @staticmethod
    def generate() -> JobID:
        """Create an id that no other job has."""
        return JobID(secrets.token_hex(16))

    @staticmethod
    def derived_from(name: str) -> JobID:
        """Return the id of a job that is called so; the same name gives the same id."""
        return JobID(hashlib.blake2b(name.encode(), digest_size=16).hexdigest())

    def __str__(self) -> str:
        return self.hex
