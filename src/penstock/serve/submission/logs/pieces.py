"""Cuts a piece out of a log so that no cut shows a part of a credential."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.redaction import HIDDEN, credentials_in

MARGIN_BYTES = 1 << 16
"""What is read before and after a piece: in it a credential is recognised as a whole."""


class LogPiece(msgspec.Struct, frozen=True, rename={"next": "next-offset"}):
    """A part of a log: whole lines, unless one is very long."""

    offset: int
    next: int
    size: int
    text: str


def cut_piece(
    log: Path, first: int, last: int, *, begin: int, size: int, secrets: Sequence[str]
) -> LogPiece:
    """Return what is from `first` up to `last`, without credentials.

    A credential is shown as `***` in the piece in which it begins, and not at all in the others.
    `begin` is where the retained part of the log begins. Within its first line nothing is shown if
    more was there once: a part of a credential may be left of it.
    """
    margin = max(MARGIN_BYTES, *(len(secret.encode()) for secret in secrets), 0)
    low, high = max(begin, first - margin), min(size, last + margin)
    with log.open("rb") as file:
        file.seek(low)
        data = file.read(high - low)
    if low == begin > 0:
        first = max(first, low + (data.find(b"\n", 0, margin) + 1 or min(margin, len(data))))
    shown, at = [], low
    for part, is_hidden in _parts(data, secrets):
        end = at + len(part)
        if is_hidden:
            if first <= at < last:
                shown.append(HIDDEN.encode())
                last = max(last, end)
            elif at < first < end:
                first = end
        else:
            shown.append(part[max(0, first - at) : max(0, last - at)])
        at = end
    last = max(first, min(last, low + len(data)))
    return LogPiece(first, last, size, b"".join(shown).decode(errors="replace"))


def _parts(data: bytes, secrets: Sequence[str]) -> Iterator[tuple[bytes, bool]]:
    """Yield the parts of a text, each with whether it is a credential."""
    # So that bytes that are no text are the same afterwards.
    text, at = data.decode(errors="surrogateescape"), 0
    for begin, end in credentials_in(text, secrets):
        yield text[at:begin].encode(errors="surrogateescape"), False
        yield text[begin:end].encode(errors="surrogateescape"), True
        at = end
    yield text[at:].encode(errors="surrogateescape"), False
