"""Reads the keyed state of a running job as of its last micro-batch, for queries.

The driver reads the files that its tasks have published, so tasks are not disturbed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import CorruptStateError, StateElsewhereError, UnknownOperatorError
from penstock.job.snapshot.stage_state import PublishedState, StageState
from penstock.snapshots.look_up import OpenOperator
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.queries.query import RunningState, StateQuery
from penstock.snapshots.state_parts import OpenPart
from penstock.snapshots.stored_snapshot import states_in
from penstock.state.backends.host_files import HostFiles

_TRIES = 3
_IDLE_S = 60.0
_PLACE = "the running job"


@dataclass(slots=True)
class _Opened:
    """One operator that is open."""

    state: StageState
    batch: int
    published: float
    files: list[HostFiles]
    """Per subtask; the next version shares them."""
    parts: list[OpenPart]
    queries: OperatorQueries
    used: float

    def close(self) -> None:
        for part in self.parts:
            part.close()
        for files in self.files:
            files.close()


class RunningStateReader:
    """Opens the state of operators that are asked for; a minute after the last query it closes it.

    Called by one thread at a time, except `close`.
    """

    def __init__(
        self, directory: Path, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        """Keep files below a directory, on the file system of the state files if possible."""
        self._directory = directory
        self._clock = clock
        self._monotonic = monotonic
        self._opened: dict[str, _Opened] = {}
        self._count = 0
        self._lock = threading.Lock()

    def read(self, states: Sequence[StageState], query: StateQuery) -> RunningState:
        """Answer a query about one of these states.

        Raises:
            UnknownOperatorError: none of them belongs to the operator.
            StateElsewhereError: the changes of the last micro-batches are on another host.
            SnapshotError: as `OperatorQueries.answer`.
        """
        state = _state_of(states, query.operator)
        with self._lock:
            opened = self._current(state)
            read = self._clock()
            answer = opened.queries.answer(query, read)
        return RunningState(answer, opened.published, read, opened.batch)

    def close_idle(self) -> None:
        """Close what has not been queried for a minute."""
        if not self._lock.acquire(blocking=False):
            return  # a query is being answered
        try:
            before = self._monotonic() - _IDLE_S
            for uid in [uid for uid, one in self._opened.items() if one.used < before]:
                self._opened.pop(uid).close()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].close()

    def _current(self, state: StageState) -> _Opened:
        for attempt in range(_TRIES):
            published = state.published()
            try:
                return self._open(state, published)
            except StateElsewhereError:
                raise
            except CorruptStateError:
                # A file of an attempt that is ending may be gone; a damaged one stays damaged.
                if attempt == _TRIES - 1:
                    raise
            finally:
                published.release()
        raise AssertionError

    def _open(self, state: StageState, published: PublishedState) -> _Opened:
        before = self._opened.get(state.uid)
        if before is not None and before.state is not state:
            # Another attempt: versions of the two have nothing in common.
            self._opened.pop(state.uid).close()
            before = None
        if before is not None and before.batch == published.batch:
            before.used = self._monotonic()
            return before
        files = self._new_files(published) if before is None else before.files
        with contextlib.ExitStack() as undo:
            if before is None:
                for new in files:
                    undo.callback(new.close)
            parts: list[OpenPart] = []
            for part, of_part in zip(published.parts, files, strict=True):
                parts.append(part.open(of_part))
                undo.callback(parts[-1].close)
            registries = [part.registry for part in parts]
            about = state.uid, state.name, state.key_type, state.max_parallelism
            found = OpenOperator(parts, [part.key_groups for part in published.parts])
            queries = OperatorQueries(found, states_in(registries, *about), state.name)
            undo.pop_all()
        if before is not None:
            for one in before.parts:
                one.close()
        for part, of_part in zip(published.parts, files, strict=True):
            of_part.keep_only({file.name for file in part.ref.files})
        used = self._monotonic()
        opened = _Opened(state, published.batch, published.published, files, parts, queries, used)
        self._opened[state.uid] = opened
        return opened

    def _new_files(self, published: PublishedState) -> list[HostFiles]:
        self._count += 1
        root = self._directory / str(self._count)
        return [HostFiles(root / str(part.subtask)) for part in published.parts]


def _state_of(states: Sequence[StageState], operator: str) -> StageState:
    found = [state for state in states if state.uid == operator]
    found = found or [state for state in states if state.name == operator]
    if len(found) != 1:
        known = tuple(f"{state.uid} ({state.name})" for state in states)
        raise UnknownOperatorError(_PLACE, operator, known)
    return found[0]
