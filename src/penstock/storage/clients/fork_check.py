"""Refuses stores in a process that was forked from one that has used them.

The clients of stores are served by threads, which a forked process does not have: a request of its
would wait forever.
"""

from __future__ import annotations

import os


class ForkCheck:
    """Remembers which process has used a client's threads; one of these per client library."""

    def __init__(self) -> None:
        self._user: int | None = None

    def before_use(self, place: object) -> None:
        """Note that this process uses the client.

        Raises:
            RuntimeError: it was forked from one that has.
        """
        me = os.getpid()
        if self._user is None:
            self._user = me
        if self._user != me:
            message = (
                f"{place} cannot be reached in process {me}: it was forked from process "
                f"{self._user} after that has used a store; fork before a store is used, or start "
                "processes with spawn"
            )
            raise RuntimeError(message)
