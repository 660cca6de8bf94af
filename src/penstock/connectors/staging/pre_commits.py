"""Chains the pre-commits of one sink, so that a failed or skipped one loses no output."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.connectors.contracts.sink import SinkSnapshot

Prepare = Callable[[], list[bytes]]


class PreCommits:
    """Makes the functions that a publisher's ``at_barrier`` returns.

    Records before one barrier are also before every later one. So a pre-commit whose predecessor
    has not returned its committables returns them too. They may be returned twice, because the
    predecessor may still run: commits are idempotent. Pre-commits of one sink run one at a time.
    """

    def __init__(self) -> None:
        self._running = threading.Lock()
        self._last: _PreCommit | None = None

    def add(self, prepare: Prepare, keep: Prepare = list) -> Callable[[], SinkSnapshot]:
        """Return the pre-commit of what was published up to now; called at the barrier.

        ``prepare`` makes it durable and returns its committables. It may be called again after it
        raised, and by a later pre-commit. ``keep`` does the same for the sink's state.
        """
        self._last = _PreCommit(prepare, keep, self._last, self._running)
        return self._last.run


class _PreCommit:
    def __init__(
        self, prepare: Prepare, keep: Prepare, before: _PreCommit | None, running: threading.Lock
    ) -> None:
        self._prepare = prepare
        self._keep = keep
        self._before = before
        self._running = running
        self._prepared: list[bytes] | None = None
        self._returned = False

    def run(self) -> SinkSnapshot:
        with self._running:
            pending: list[_PreCommit] = [self]
            while (before := pending[-1]._before) is not None and not before._returned:
                pending.append(before)
            committables = [one for each in reversed(pending) for one in each._committables()]
            state = self._keep()
            self._returned, self._before = True, None
            return SinkSnapshot(committables, state)

    def _committables(self) -> list[bytes]:
        if self._prepared is None:
            self._prepared = self._prepare()
        return self._prepared
