"""Bearer tokens: who may look at jobs, and who may control them."""

from __future__ import annotations

import hashlib
import hmac
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from penstock.errors import TokensFileError

_SHORTEST = 20
_OTHERS = 0o077
_LARGEST_FILE = 1 << 20


class Role(IntEnum):
    """What a caller may do."""

    NOBODY = 0
    """Nothing."""
    READER = 1
    """Look at everything."""
    OPERATOR = 2
    """Also trigger savepoints, stop and cancel jobs."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server; of a token only its digest is kept."""

    digests: tuple[tuple[bytes, Role], ...] = field(repr=False)

    def role(self, authorization: str | None) -> Role:
        """Return the role of a caller with this `Authorization` header.

        How long it takes does not depend on the token.
        """
        scheme, _, token = (authorization or "").partition(" ")
        digest = _digest(token.strip())
        role = Role.NOBODY
        for known, its_role in self.digests:
            if hmac.compare_digest(known, digest):
                role = max(role, its_role)
        return role if scheme.lower() == "bearer" else Role.NOBODY


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens: lines of a role and a token, and comments.

    Raises:
        TokensFileError: it cannot be read, others may read it, or a line is malformed.
    """
    try:
        with path.open("rb") as file:
            facts = path.stat()
            if not stat.S_ISREG(facts.st_mode):
                raise TokensFileError(str(path), "it is not a regular file")
            if facts.st_mode & _OTHERS:
                mode = stat.S_IMODE(facts.st_mode)
                raise TokensFileError(str(path), f"others may read or write it (mode {mode:04o})")
            text = file.read(_LARGEST_FILE).decode()
    except OSError as error:
        raise TokensFileError(str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TokensFileError(str(path), "it is not UTF-8") from error
    digests = tuple(_parse(path, text))
    if not digests:
        raise TokensFileError(str(path), "it has no token")
    return Tokens(digests)


def _parse(path: Path, text: str) -> Iterator[tuple[bytes, Role]]:
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # The line itself is never shown: it may be a token without its role.
        role = {"reader": Role.READER, "operator": Role.OPERATOR}.get(words[0].lower())
        if role is None or len(words) != 2:
            raise TokensFileError(str(path), f"line {number} is not a role and a token")
        if len(words[1]) < _SHORTEST:
            raise TokensFileError(str(path), f"the token in line {number} is too short")
        yield _digest(words[1]), role


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
