"""Committer of a file sink: gives pending files their final names."""
# ruff: noqa: D102 - the contract documents these methods

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from penstock.connectors.contracts.committer import CommitRequest, Committer
from penstock.connectors.files.committables import (
    Committable,
    decode_committable,
    decode_entry,
)
from penstock.connectors.files.part_files import PartFiles, in_parallel
from penstock.errors import ConnectorError


class PartFileCommitter(Committer):
    """Lets pending files appear under their final names, then removes what they were made of.

    A restored snapshot may hold parts of a sink that had its path elsewhere: ``other`` is for those
    that were in a store if the sink's path is in none, and the reverse.
    """

    def __init__(self, own: PartFiles[Any], other: PartFiles[Any]) -> None:
        self._own = own
        self._places = (own, other)

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        asked = [(request, decode_committable(request.get_committable())) for request in requests]
        for files in self._places:
            self._commit([one for one in asked if isinstance(one[1], files.kind)], files)

    def discard(self, discarded: Sequence[bytes], retained: Sequence[bytes]) -> None:
        self._own.discard(map(decode_entry, discarded), map(decode_entry, retained))

    def sweep(self, keep: Sequence[bytes]) -> None:
        self._own.sweep(map(decode_entry, keep))

    def _commit(
        self, asked: Sequence[tuple[CommitRequest, Committable]], files: PartFiles[Any]
    ) -> None:
        def make_visible(one: tuple[CommitRequest, Committable]) -> list[Committable]:
            request, part = one
            try:
                is_new = files.make_visible(part)
            except ConnectorError as error:
                request.signal_failed_with_known_reason(error)
                return []
            except OSError as error:
                request.signal_failed_with_unknown_reason(error)
                return []
            if not is_new:
                request.signal_already_committed()
            return [part]

        visible = list(chain.from_iterable(in_parallel(make_visible, asked, files.threads)))
        if visible:
            files.finish(visible)
