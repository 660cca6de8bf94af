"""Names by which a sink knows its own transactions and connections in a database."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from penstock.ids import attempt_number

__all__ = ["SinkIdentity", "attempt_in", "sink_in"]

_LONGEST_GID = 199
_LONGEST_APPLICATION_NAME = 63


def attempt_in(name: str) -> int | None:
    """Return the number of the attempt in a gid or application name; None if that is not ours."""
    parts = name.split("-")
    return attempt_number(parts[2]) if len(parts) > 2 and parts[0] == "penstock" else None


def sink_in(gid: str) -> str:
    """Return the key of the sink that made up a gid, of whatever job it is."""
    return gid.split("-")[1]


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """One sink of one job, as one attempt of the job has it.

    ``birth`` tells jobs of the same name apart; ``step`` is what the step's directory is called.
    """

    job: str
    birth: str
    step: str
    attempt: str

    @property
    def key(self) -> str:
        """What all attempts of this sink share and no other sink has."""
        facts = "\0".join((self.job, self.birth, self.step)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(facts, digest_size=8).hexdigest()

    @property
    def number(self) -> int:
        """The attempt's number; later attempts have higher ones."""
        return attempt_number(self.attempt) or 0

    @property
    def prefix(self) -> str:
        """What the names of all attempts begin with; without any character special to LIKE."""
        return f"penstock-{self.key}-"

    def gid(self, checkpoint: int, subtask: int, nonce: str) -> str:
        """Name a prepared transaction; the job and step at its end are for people only."""
        name = f"{self.prefix}{self.attempt}-{checkpoint}-{subtask}-{nonce}-{self.job}-{self.step}"
        return name.encode("ascii", "replace")[:_LONGEST_GID].decode().replace("'", "?")

    def application_name(self, purpose: str) -> str:
        """Name a connection."""
        return f"{self.prefix}{self.attempt}-{purpose}"[:_LONGEST_APPLICATION_NAME]
