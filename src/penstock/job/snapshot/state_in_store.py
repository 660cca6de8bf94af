"""Puts the keyed state of a stage's checkpoints into a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.graph.plan import Stage
from penstock.job import state_jobs
from penstock.job.snapshot.run_on_hosts import run_on_hosts
from penstock.job.state_jobs import StoreWork
from penstock.job.submitter import Submitter
from penstock.state.backends.refs import FileRef, StagedName, StateRef
from penstock.state.files import place_of
from penstock.task.layout import AttemptLayout


class StateInStore:
    """Knows which state files are in the store already; tasks put the others there.

    Called by the stage's checkpoint executor only.
    """

    def __init__(
        self,
        stage: Stage,
        layout: AttemptLayout,
        submitter: Submitter,
        registry: SharedStateRegistry,
        restored: Sequence[StateRef],
    ) -> None:
        self._stage = stage
        self._layout = layout
        self._submitter = submitter
        self._stored: list[Mapping[str, FileRef]] = [_stored_in(ref) for ref in restored]
        """Per subtask, the files of the last snapshot by name."""
        # The next checkpoint refers to these objects, too, even if the last one was aborted.
        self._lease = registry.acquire()

    def put(self, refs: Sequence[StateRef], version: int) -> tuple[list[StateRef], list[int]]:
        """Put the files of a frozen state into the store.

        Returns the state as a checkpoint refers to it and, per subtask, how many bytes are new.

        Raises:
            CorruptStateError: a file is not what a task wrote.
        """
        new = [
            [f for f in ref.files if f.stored is None and f.name not in known]
            for ref, known in zip(refs, self._stored, strict=True)
        ]
        if any(new):
            uid = self._stage.head.uid
            work = [
                StoreWork(
                    self._layout.place(uid, subtask),
                    tuple(files),
                    version,
                    StagedName(self._layout.attempt, version, 0, subtask, 0),
                )
                for subtask, files in enumerate(new)
            ]
            put = run_on_hosts(
                self._submitter, self._stage, self._layout, "store", state_jobs.store, work
            )
        else:
            put = new
        stored = [
            _located(ref, {**known, **{file.name: file for file in files}})
            for ref, known, files in zip(refs, self._stored, put, strict=True)
        ]
        sizes = [
            sum(file.size for file in ref.files if file.name not in known)
            for ref, known in zip(stored, self._stored, strict=True)
        ]
        self._stored = [_stored_in(ref) for ref in stored]
        self._lease.replace(
            place_of(self._layout.place(self._stage.head.uid, subtask).shared, file)
            for subtask, ref in enumerate(stored)
            for file in ref.files
        )
        return stored, sizes


def _stored_in(ref: StateRef) -> dict[str, FileRef]:
    return {file.name: file for file in ref.files if file.stored is not None}


def _located(ref: StateRef, stored: Mapping[str, FileRef]) -> StateRef:
    """Return the same state with references to the files in the store."""

    def located(files: Iterable[FileRef]) -> tuple[FileRef, ...]:
        return tuple(stored.get(file.name, file) for file in files)

    base, tables = ref.base, ref.tables
    return replace(
        ref,
        base=None if base is None else stored.get(base.name, base),
        tables=None if tables is None else replace(tables, files=located(tables.files)),
        deltas=located(ref.deltas),
    )
