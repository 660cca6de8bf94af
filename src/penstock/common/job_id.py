"""Job ids."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

__all__ = ["JobID"]


@dataclass(frozen=True, slots=True)
class JobID:
    """A job's id as PyFlink shows it: 32 hexadecimal digits, derived from the `JobKey`."""

    hex: str

    @staticmethod
    def generate() -> JobID:
        """Create a unique id."""
        return JobID(secrets.token_hex(16))

    @staticmethod
    def derived_from(name: str) -> JobID:
        """Return the id of a job name; the same name has the same id."""
        return JobID(hashlib.blake2b(name.encode(), digest_size=16).hexdigest())

    def __str__(self) -> str:
        return self.hex
