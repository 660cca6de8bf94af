"""Pre-commits of one sink that lose nothing when one of them fails or is never run."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.connectors.sink import SinkCut

__all__ = ["PreCommits"]

Prepare = Callable[[], list[bytes]]


class PreCommits:
    """Makes the functions that a publisher's ``at_barrier`` returns.

    Records before one cut are also before every later one. So a cut whose predecessor has not
    given its committables away gives them too. That may be twice, since the predecessor may still
    run; commits are idempotent. Pre-commits of one sink run one after the other.
    """

    def __init__(self) -> None:
        self._running = threading.Lock()
        self._last: _Cut | None = None

    def cut(self, prepare: Prepare, keep: Prepare) -> Callable[[], SinkCut]:
        """Take up a cut; called at the barrier.

        ``prepare`` makes what was cut off durable and gives its committables. It may be called
        again after it raised, and by the pre-commit of a later cut. ``keep`` does the same for
        the state.
        """
        self._last = _Cut(prepare, keep, self._last, self._running)
        return self._last.pre_commit


class _Cut:
    def __init__(
        self, prepare: Prepare, keep: Prepare, before: _Cut | None, running: threading.Lock
    ) -> None:
        self._prepare = prepare
        self._keep = keep
        self._before = before
        self._running = running
        self._prepared: list[bytes] | None = None
        self._given = False

    def pre_commit(self) -> SinkCut:
        with self._running:
            pending: list[_Cut] = [self]
            while (before := pending[-1]._before) is not None and not before._given:
                pending.append(before)
            committables = [one for cut in reversed(pending) for one in cut._committables()]
            state = self._keep()
            self._given, self._before = True, None
            return SinkCut(committables, state)

    def _committables(self) -> list[bytes]:
        if self._prepared is None:
            self._prepared = self._prepare()
        return self._prepared
