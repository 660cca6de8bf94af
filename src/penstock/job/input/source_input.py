"""The input of a stage that reads an external source."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from penstock.checkpoint.storage.metadata import SourceState
from penstock.connectors.contracts.source import SourceEnumerator
from penstock.errors import FencedError
from penstock.ids import CheckpointId
from penstock.job.input.read_progress import ReadProgress
from penstock.job.input.stage_input import Entries, MicroBatchInput, ReadView, StageInput
from penstock.task.messages import SubtaskWork


@dataclass(eq=False)
class SourceInput(StageInput):
    """Turns the ranges that a source's enumerator plans into micro-batches."""

    enumerator: SourceEnumerator
    parallelism: int
    poll_seconds: float
    check_owner: Callable[[], None]
    """Raises if another driver has taken the job."""
    progress: ReadProgress | None = None

    def __post_init__(self) -> None:
        self._has_ended = False
        self._is_paused = False
        # The coordinator's thread appends, the region loop pops: the enumerator is called by the
        # loop only, so that connectors need no locks. Only the newest positions matter.
        self._completed: deque[SourceState] = deque(maxlen=1)
        self._releasable: deque[Mapping[str, int]] = deque(maxlen=1)

    def poll(self, size: int, passed: CheckpointId, view: ReadView) -> MicroBatchInput | None:
        """Emit a triggered barrier, else let the enumerator plan the next ranges."""
        coordinator = view()
        self._is_paused = coordinator.sources_paused
        self._notify_source()
        no_work = [SubtaskWork()] * self.parallelism
        if coordinator.draining and not self._has_ended:
            self._has_ended = True
            return MicroBatchInput(no_work, end_of_input=True)
        if (checkpoint := coordinator.next_barrier(passed)) is not None:
            return MicroBatchInput(no_work, barrier=checkpoint)
        if self._has_ended or self._is_paused or size == 0:
            return None
        return self._plan(size)

    def _plan(self, max_records: int) -> MicroBatchInput | None:
        plan = self.enumerator.plan(max_records)
        end = self.enumerator.finished()
        if not plan and not end:
            return None
        self._has_ended = end
        positions = self.enumerator.positions()
        # The end of a range may be spelled differently from the position a checkpoint stores.
        planned = {r.split: positions.get(r.split, r.end) for ranges in plan for r in ranges}
        if plan and self.progress is not None:
            self.progress.write(positions)
        work = [SubtaskWork(ranges=list(ranges)) for ranges in plan]
        work += [SubtaskWork()] * (self.parallelism - len(work))
        return MicroBatchInput(work, end, positions=planned)

    def snapshot(self) -> SourceState:
        """Return the state of the source after the last published micro-batch.

        It is finished if the source itself has no more input; a drained source may have.
        """
        source = self.enumerator
        positions, finished = source.positions(), source.finished()
        return SourceState(positions, finished, source.snapshot_state(), source.snapshot_files())

    def notify_checkpoint_complete(self, state: SourceState) -> None:
        """Queue the source's state in a completed checkpoint; the region loop tells the source."""
        self._completed.append(state)

    def release(self, positions: Mapping[str, int]) -> None:
        """Queue the lowest positions any snapshot needs; the region loop tells the source."""
        self._releasable.append(positions)

    def _notify_source(self) -> None:
        if self._completed or self._releasable:
            # What is acknowledged or deleted is fenced by nothing but this.
            self.check_owner()
        while self._completed:
            state = self._completed.popleft()
            self.enumerator.notify_state_complete(state.enumerator_state)
            self.enumerator.notify_checkpoint_complete(state.positions)
        while self._releasable:
            if positions := self._releasable.popleft():
                self.enumerator.release(positions)

    def notify_published(self, batch: MicroBatchInput, records: int) -> Entries:
        """Tell the source how many records its ranges held."""
        ranges = [r for w in batch.work for r in w.ranges]
        if ranges:
            self.enumerator.observe(records, ranges)
        return []

    def pending_records(self) -> int | None:
        """Return what the enumerator says."""
        return self.enumerator.pending_records()

    def parallel_splits(self) -> Collection[str]:
        """Return what the enumerator says."""
        return self.enumerator.parallel_splits()

    def is_finished(self, split: str) -> bool:
        """Return what the enumerator says."""
        return self.enumerator.is_finished(split)

    def wait_seconds(self) -> float | None:
        """Return the enumerator's next poll, but never less than a tenth of the poll interval."""
        if self._has_ended or self._is_paused:
            return None
        next_poll = self.enumerator.next_poll()
        return None if next_poll is None else max(next_poll, self.poll_seconds / 10)

    def close(self) -> None:
        """Deliver the last notifications to the source, and close it."""
        try:
            with suppress(FencedError):
                self._notify_source()
        finally:
            self.enumerator.close()
