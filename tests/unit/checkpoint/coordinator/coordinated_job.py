"""A coordinator with everything real around it but the stages, which tests play themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.checkpoint.coordinator.checkpoint_coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.commit_executor import CommitExecutor
from penstock.checkpoint.coordinator.events import RecordsRead
from penstock.checkpoint.coordinator.job_callbacks import StageFacts
from penstock.checkpoint.coordinator.pending_checkpoint import (
    AddCommittables,
    FrozenSnapshot,
    StageSnapshot,
)
from penstock.checkpoint.coordinator.stats_tracker import CheckpointStatsTracker
from penstock.checkpoint.history import CheckpointStats, CheckpointStatus, History
from penstock.checkpoint.settings import CheckpointSettings, read_checkpoint_settings
from penstock.checkpoint.shared_state_registry import SharedStateRegistry
from penstock.checkpoint.storage.completed_checkpoint_store import (
    CompletedCheckpoint,
    CompletedCheckpointStore,
)
from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import AttemptStarted, JournalEntry
from penstock.checkpoint.storage.metadata import (
    CheckpointMetadata,
    CommittableState,
    OperatorSnapshot,
    SinkState,
)
from penstock.checkpoint.storage.metadata_serializer import decode_metadata
from penstock.common.configuration import Configuration
from penstock.connectors.contracts.committer import CommitRequest, Committer
from penstock.ids import AttemptId, CheckpointId, JobKey, StageId
from penstock.testing.manual_clock import ManualClock
from tests.unit.support import eventually

SOURCE, MIDDLE, SINK = StageId(0), StageId(1), StageId(2)
STAGES = (
    StageFacts(SOURCE, "numbers", listens=False),
    StageFacts(MIDDLE, "count", listens=True),
    StageFacts(SINK, "files", listens=False),
)
SINK_UID = "files"


class Commits(Committer):
    """Remembers what it has to commit, call by call; waits or fails if a test says so."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: Exception | None = None

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        self.may_go.wait(20)
        if self.error is not None:
            raise self.error
        self.calls.append([r.get_committable() for r in requests])


class Job:
    """The callbacks of the job: remembers the calls."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.ends: list[CompletedCheckpoint | None] = []
        self.completions: list[CheckpointId] = []
        self.discarded: list[CheckpointId] = []

    def wake(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def end(self, stopped_at: CompletedCheckpoint | None) -> None:
        self.ends.append(stopped_at)

    def completed(self, completed: CompletedCheckpoint, operators: list[OperatorSnapshot]) -> None:
        self.completions.append(completed.checkpoint)

    def notify_checkpoint_complete(self, operators: list[OperatorSnapshot]) -> None:
        pass

    def notify_checkpoints_discarded(self, checkpoints: list[CheckpointId]) -> None:
        self.discarded += checkpoints


class Marker(int):
    """A number of records that says when it is counted: all events before are handled then."""

    def __init__(self, _: int) -> None:
        self.counted = threading.Event()

    def __radd__(self, other: int) -> int:
        self.counted.set()
        return other


class World:
    """One attempt of a job of three stages: a source, a middle that listens, and a sink.

    Time stands still unless a test moves `clock`, or `time_of_day` if that is another one.
    """

    def __init__(
        self,
        root: Path,
        attempt: str = "a1",
        time_of_day: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        self.dir = JobDir(root, JobKey("count"))
        self.journal = Journal(self.dir.storage, self.dir.key)
        self.journal.entries()
        self.journal.append(AttemptStarted(attempt, 1.0, "host", 1))
        self.history = History(self.dir.storage)
        self.settings = _settings(**settings)
        self.clock = ManualClock(1_000.0)
        self.store = CompletedCheckpointStore(
            self.dir,
            self.journal,
            AttemptId(attempt),
            "count",
            self.settings.retained,
            attempt,
            clock=self.clock,
        )
        self.files = SharedStateRegistry()
        self.committer = Commits()
        committers = {SINK_UID: self.committer}
        self.commits = CommitExecutor(committers, {SINK_UID: "files"}, self.store, 0)
        self.stats = CheckpointStatsTracker(self.history, AttemptId(attempt), self.clock)
        self.job = Job()
        self.coordinator = CheckpointCoordinator(
            STAGES,
            self.settings,
            self.store,
            self.files,
            self.commits,
            self.stats,
            self.job,
            self.clock,
            time_of_day or self.clock,
        )
        self.clock.when_moved(self.coordinator.clock_moved)

    def __enter__(self) -> World:
        self.coordinator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.committer.may_go.set()
        self.coordinator.stop()

    @property
    def live(self) -> list[CheckpointId]:
        """The checkpoints that are neither complete nor aborted, once all events are handled."""
        self.handled()
        return list(self.coordinator.view.barriers)

    def handled(self) -> None:
        """Wait until the coordinator has handled everything that has happened so far."""
        marker = Marker(0)
        self.coordinator._events.put(RecordsRead(marker))
        assert marker.counted.wait(20)

    def committed(self) -> None:
        """Wait until sinks have committed what they had to, and the coordinator knows."""
        done = threading.Event()
        self.commits.submit(CheckpointId(0), {}, done.set, lambda _: done.set())
        assert done.wait(20)
        self.handled()

    # -- what stages do ---------------------------------------------------------------------

    def triggered(self, after: int = 0) -> CheckpointId:
        """Return the next checkpoint, after the interval if there is one, as a source sees it."""
        self.handled()
        view = self.coordinator.view
        if view.next_barrier(CheckpointId(after)) is None and self.settings.interval_s is not None:
            self.clock.advance(self.settings.interval_s)
        eventually(lambda: self.coordinator.view.next_barrier(CheckpointId(after)) is not None)
        checkpoint = self.coordinator.view.next_barrier(CheckpointId(after))
        assert checkpoint is not None
        return checkpoint

    def submit_snapshot(
        self,
        stage: StageId,
        checkpoint: CheckpointId,
        *,
        files: Sequence[Path] = (),
        prepared: Sequence[bytes] = (),
        persisting: threading.Event | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Reach the barrier at one stage."""
        lease = self.files.acquire(files)

        def run_async_phase(add: AddCommittables) -> StageSnapshot:
            if persisting is not None:
                persisting.wait(20)
            name = STAGES[stage].name
            sink = None
            if stage == SINK:
                add(name, [CommittableState(checkpoint, c) for c in prepared])
                sink = SinkState([], [])
            if error is not None:
                raise error
            operator = OperatorSnapshot(name, name, "map", 1, 128, 1, sink=sink)
            return StageSnapshot([operator], lease)

        self.coordinator.submit_snapshot(FrozenSnapshot(stage, checkpoint, lease, run_async_phase))

    def acknowledge(self, checkpoint: CheckpointId, *, prepared: Sequence[bytes] = ()) -> None:
        """Reach the barrier at all stages."""
        self.submit_snapshot(SOURCE, checkpoint)
        self.submit_snapshot(MIDDLE, checkpoint)
        self.submit_snapshot(SINK, checkpoint, prepared=prepared)

    def complete(self, after: int = 0, *, prepared: Sequence[bytes] = ()) -> CheckpointId:
        """Take the next checkpoint to its end."""
        checkpoint = self.triggered(after)
        self.acknowledge(checkpoint, prepared=prepared)
        self.over(checkpoint)
        return checkpoint

    def over(self, checkpoint: CheckpointId) -> None:
        """Wait until a checkpoint is complete or aborted, and written down as that."""
        eventually(lambda: checkpoint not in self.coordinator.view.barriers)
        eventually(lambda: self.is_recorded(checkpoint))

    def all_end(self) -> None:
        for stage in STAGES:
            self.coordinator.stage_ended(stage.id)

    # -- what is on disk --------------------------------------------------------------------

    def entries(self) -> list[JournalEntry]:
        return [entry for _, entry in Journal(self.dir.storage, self.dir.key).entries()]

    def record(self, checkpoint: CheckpointId) -> CheckpointStats | None:
        return self.history.checkpoint(checkpoint)

    def is_recorded(self, checkpoint: CheckpointId) -> bool:
        record = self.record(checkpoint)
        return record is not None and record.status is not CheckpointStatus.PENDING

    def metadata(self, path: Path) -> CheckpointMetadata:
        return decode_metadata((path / "_metadata").read_bytes(), str(path))

    def committables_in(self, path: Path) -> list[bytes]:
        """The committables of the sink in a checkpoint."""
        operator = self.metadata(path).operator(SINK_UID)
        assert operator is not None
        assert operator.sink is not None
        return [c.data for c in operator.sink.committables]


def _settings(**given: Any) -> CheckpointSettings:
    quiet: dict[str, Any] = {"enabled": True, "interval_s": None, "records": None}
    return replace(read_checkpoint_settings(Configuration()), **{**quiet, **given})


def another_driver(world: World) -> Journal:
    """Let another driver take over the job."""
    journal = Journal(world.dir.storage, world.dir.key)
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "elsewhere", 2))
    return journal
