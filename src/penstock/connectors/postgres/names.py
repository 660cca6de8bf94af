"""Names in the database: of a sink's transactions and connections, and quoted for SQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import UnsafeNameError
from penstock.ids import attempt_number

_GID = re.compile(r"penstock-[0-9a-f]{16}-a[0-9]+-[0-9]+-[0-9]+-")
_MAX_GID_LENGTH = 199
_MAX_APPLICATION_NAME_LENGTH = 63


def attempt_number_of(name: str) -> int | None:
    """Return the attempt number in a gid or application name; None if it has none."""
    parts = name.split("-")
    return attempt_number(parts[2]) if len(parts) > 2 and parts[0] == "penstock" else None


def check_gid(gid: str) -> None:
    """Check that a gid which a snapshot names is one that a sink made.

    Raises:
        UnsafeNameError: it is not; the transaction may be anyone's.
    """
    if not _GID.match(gid):
        raise UnsafeNameError(gid, "the prepared transactions of penstock's sinks")


def upload_name_of(gid: str) -> str:
    """Return the name for the files of a transaction, below the attempt that prepared it."""
    attempt, checkpoint, subtask = gid.split("-")[2:5]
    nonce = hashlib.blake2b(gid.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{attempt}/{checkpoint}-{subtask}-{nonce}"


def sink_key_of(gid: str) -> str:
    """Return the key of the sink that created a gid."""
    return gid.split("-")[1]


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """One sink of one job, as one attempt of the job has it.

    ``job_instance`` tells jobs of one name apart; ``step`` is the name of the step's directory.
    """

    job: str
    job_instance: str
    step: str
    attempt: str

    @property
    def key(self) -> str:
        """Identifies this sink, the same in all attempts."""
        parts = "\0".join((self.job, self.job_instance, self.step)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(parts, digest_size=8).hexdigest()

    @property
    def number(self) -> int:
        """The attempt number; it increases with each attempt."""
        return attempt_number(self.attempt) or 0

    @property
    def prefix(self) -> str:
        """The prefix of all names of this sink, without characters that are special in LIKE."""
        return f"penstock-{self.key}-"

    def gid(self, checkpoint: int, subtask: int, nonce: str) -> str:
        """Return the name of a prepared transaction; job and step at its end are informative."""
        name = f"{self.prefix}{self.attempt}-{checkpoint}-{subtask}-{nonce}-{self.job}-{self.step}"
        return name.encode("ascii", "replace")[:_MAX_GID_LENGTH].decode().replace("'", "?")

    def application_name(self, purpose: str) -> str:
        """Return the name of a connection."""
        return f"{self.prefix}{self.attempt}-{purpose}"[:_MAX_APPLICATION_NAME_LENGTH]


def quoted(name: str) -> str:
    """Quote a name: its case is kept, and nothing in it is interpreted."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(table: str) -> str:
    """Quote ``table`` or ``schema.table``."""
    return ".".join(map(quoted, table.split(".", 1)))


def quoted_text(text: str) -> str:
    """Quote a string literal where SQL takes no parameters."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Iterable[str]) -> str:
    """Quote names as a comma-separated list."""
    return ", ".join(map(quoted, names))
