"""The keyed state of a stage, as the driver keeps it: a ref per subtask, folded now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from penstock.graph.plan import Stage
from penstock.job.settings import JobSettings
from penstock.job.submitter import Submitter
from penstock.state.backends.base import StagedName, StatePlace, StateRef
from penstock.state.backends.registry import backend_named
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement

logger = logging.getLogger("penstock.job")


class StageState:
    """Which version each subtask's state is at; nothing for a stage that keeps none.

    Called by the stage's loop. Folding runs in a thread of its own, beside micro-batches; its
    result is taken over between two of them.
    """

    def __init__(
        self, stage: Stage, layout: Layout, settings: JobSettings, submitter: Submitter
    ) -> None:
        self._stage = stage
        self._layout = layout
        self._submitter = submitter
        self._fold_after = settings.compact_after_deltas
        self._backend = backend_named(settings.backend, stage.head.name)
        keeps_state = stage.head.kind.is_keyed and not settings.batch_mode
        self._refs = [StateRef(version=0)] * stage.parallelism if keeps_state else []
        self._folding: threading.Thread | None = None
        self._bases: list[StateRef | None] = []

    def ref(self, subtask: int) -> StateRef | None:
        """Return what a subtask's next micro-batch starts from."""
        return self._refs[subtask] if self._refs else None

    def after(self, batch: int, acks: Sequence[Acknowledgement]) -> list[StateRef]:
        """Return the refs as they will be once the micro-batch is published."""
        if not self._refs:
            return []
        pairs = zip(self._refs, acks, strict=True)
        return [self._backend.publish(ref, batch, ack.state) for ref, ack in pairs]

    def accept(self, refs: list[StateRef]) -> None:
        """Go on from these refs: their micro-batch is published."""
        self._refs = refs

    def start_folding(self, batch: int) -> None:
        """Fold deltas into new bases, in the background, if there are many."""
        if self._folding is not None or all(len(r.deltas) < self._fold_after for r in self._refs):
            return
        work = [
            (self._place(i), ref, StagedName(self._layout.attempt, batch, 0, i, 0))
            for i, ref in enumerate(self._refs)
        ]
        self._folding = threading.Thread(
            target=self._fold, args=(work,), name=f"fold-{self._stage.id}", daemon=True
        )
        self._folding.start()

    def take_folded(self) -> None:
        """Change over to new bases, between micro-batches: no task reads the old files now."""
        if self._folding is None or self._folding.is_alive():
            return
        self._folding = None
        bases, self._bases = self._bases, []
        for subtask, base in enumerate(bases):
            if base is not None:
                old, new = self._refs[subtask], self._backend.rebase(self._refs[subtask], base)
                self._refs[subtask] = new
                place = self._place(subtask)
                needed = self._backend.files(place, new)
                for path in self._backend.files(place, old):
                    if path not in needed:
                        path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wait for a fold that still runs."""
        if self._folding is not None:
            self._folding.join()

    def _fold(self, work: list[tuple[StatePlace, StateRef, StagedName]]) -> None:
        try:
            self._bases = self._submitter.fold(self._stage.id, work)
        except Exception as error:
            # The deltas are all still there: folding again later is as good.
            logger.warning("stage %r: folding its state failed: %s", self._stage.name, error)

    def _place(self, subtask: int) -> StatePlace:
        uid = self._stage.head.uid
        return StatePlace(self._layout.state(uid, subtask), self._layout.local_state(uid, subtask))
