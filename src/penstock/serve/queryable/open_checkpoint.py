"""A checkpoint or savepoint whose operators are opened when they are asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.snapshots.look_up import OpenOperator
from penstock.snapshots.queries.operator_queries import OperatorQueries
from penstock.snapshots.state_parts import CheckpointPart, OpenPart
from penstock.snapshots.stored_snapshot import StoredSnapshot
from penstock.state.backends.host_files import HostFiles

_MANY = 50
"""Look-ups in one checkpoint, after which the next one is prepared for more."""


class OperatorFiles:
    """The state files of operators on this host, by operator and subtask.

    Checkpoints that are opened one after another share them. Called by one thread at a time.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, list[HostFiles]] = {}
        self._count = 0

    def of(self, uid: str, subtasks: int) -> list[HostFiles]:
        """Return those of an operator."""
        files = self._files.setdefault(uid, [])
        while len(files) < subtasks:
            self._count += 1
            files.append(HostFiles(self._directory / str(self._count)))
        return files[:subtasks]

    def keep_only(self, needed: Iterable[OpenCheckpoint]) -> None:
        """Remove the files that none of these checkpoints has open."""
        names: dict[tuple[str, int], set[str]] = {}
        is_open: set[str] = set()
        for checkpoint in needed:
            is_open.update(checkpoint.open_operators)
            for uid, subtask, file in checkpoint.files():
                names.setdefault((uid, subtask), set()).add(file)
        for uid in list(self._files):
            for subtask, files in enumerate(self._files[uid]):
                files.keep_only(names.get((uid, subtask), ()))
            if uid not in is_open:
                for files in self._files.pop(uid):
                    files.close()

    def close(self) -> None:
        """Remove all files."""
        for uid in list(self._files):
            for files in self._files.pop(uid):
                files.close()


@dataclass(slots=True)
class _Opened:
    queries: OperatorQueries
    parts: list[OpenPart]
    names: list[set[str]]
    """Per subtask, the files that are open."""
    used: float = 0.0
    uses: int = 0


class OpenCheckpoint:
    """Any thread may look states up; `open` is called by one thread at a time."""

    def __init__(self, snapshot: StoredSnapshot, files: OperatorFiles) -> None:
        self.snapshot = snapshot
        self.number = snapshot.metadata.checkpoint
        self.is_committed = False
        """Whether sinks have committed everything up to it."""
        self.shared = files
        self._opened: dict[str, _Opened] = {}
        self._users = 0
        self._lock = threading.Lock()

    def acquire(self) -> OpenCheckpoint:
        """Keep it from being closed until `release`."""
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        """End one use."""
        with self._lock:
            self._users -= 1

    @property
    def is_used(self) -> bool:
        """Whether it is in use."""
        return self._users > 0

    def ready(self, operator: str, now: float) -> OperatorQueries | None:
        """Return an operator's states if it is open; `operator` is its uid."""
        found = self._opened.get(operator)
        if found is None:
            return None
        found.used = now
        found.uses += 1
        return found.queries

    def open(self, operator: OperatorSnapshot, now: float) -> OperatorQueries:
        """Return an operator's states; its files are linked or copied if it is not open.

        Raises:
            CorruptStateError: a file is missing, damaged or another one.
        """
        if (ready := self.ready(operator.uid, now)) is not None:
            return ready
        parts = self.snapshot.parts(operator)
        files = self.shared.of(operator.uid, len(parts))
        opened: list[OpenPart] = []
        with contextlib.ExitStack() as undo:
            for part, of_part in zip(parts, files, strict=True):
                opened.append(part.open(of_part))
                undo.callback(opened[-1].close)
            states = self.snapshot.keyed_states(operator, opened)
            undo.pop_all()
        found = OpenOperator(opened, [part.key_groups for part in parts])
        names = [
            {file.name for file in part.ref.files} if isinstance(part, CheckpointPart) else set()
            for part in parts
        ]
        queries = OperatorQueries(found, states, operator.name)
        self._opened[operator.uid] = _Opened(queries, opened, names, now)
        return queries

    def used_since(self, then: float) -> list[str]:
        """Return the uids of operators that were used since a time, the last used first."""
        used = [(opened.used, uid) for uid, opened in self._opened.items() if opened.used >= then]
        return [uid for _, uid in sorted(used, reverse=True)]

    @property
    def open_operators(self) -> frozenset[str]:
        """The uids of the operators that are open."""
        return frozenset(self._opened)

    def is_busy(self, uid: str) -> bool:
        """Whether many look-ups were made in an operator."""
        found = self._opened.get(uid)
        return found is not None and found.uses >= _MANY

    def prepare(self, uid: str) -> None:
        """Do ahead what the first look-ups in an operator would do."""
        for part in self._opened[uid].parts:
            part.prepare()

    def files(self) -> Iterator[tuple[str, int, str]]:
        """Iterate over the files that are open: operator, subtask and name."""
        for uid, opened in self._opened.items():
            for subtask, names in enumerate(opened.names):
                for name in names:
                    yield uid, subtask, name

    def close(self) -> None:
        """Close everything, when it is not in use; its files stay until they are removed."""
        while self._opened:
            _, opened = self._opened.popitem()
            for part in opened.parts:
                part.close()
