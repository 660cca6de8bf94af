"""A coordinator with everything real around it but the stages, which tests play themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.checkpoint.commits import CommitLane
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.history import CheckpointRecord, History, RecordStatus
from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.job_side import StageFacts
from penstock.checkpoint.journal import AttemptStarted, Journal, JournalEntry
from penstock.checkpoint.metadata import (
    CheckpointMetadata,
    CommittableState,
    OperatorSnapshot,
    SinkState,
)
from penstock.checkpoint.metadata_codec import decode_metadata
from penstock.checkpoint.pending import Owe, StageCut, StageSnapshot
from penstock.checkpoint.settings import CheckpointSettings, read_checkpoint_settings
from penstock.checkpoint.store import CheckpointStore, Completed
from penstock.common.configuration import Configuration
from penstock.connectors.committer import CommitRequest, Committer
from penstock.ids import AttemptId, CheckpointId, JobKey, StageId
from tests.unit.support import eventually

SOURCE, MIDDLE, SINK = StageId(0), StageId(1), StageId(2)
STAGES = (
    StageFacts(SOURCE, "numbers", True, listens=False),
    StageFacts(MIDDLE, "count", False, listens=True),
    StageFacts(SINK, "files", False, listens=False),
)
SINK_UID = "files"


class Commits(Committer):
    """Remembers what it was asked to commit, call by call; waits or fails if told to."""

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
    """The job's side: remembers what it was told."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self.ends: list[Completed | None] = []
        self.told: list[CheckpointId] = []
        self.gone: list[CheckpointId] = []

    def wake(self) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    def end(self, stopped_at: Completed | None) -> None:
        self.ends.append(stopped_at)

    def completed(self, completed: Completed, operators: list[OperatorSnapshot]) -> None:
        self.told.append(completed.checkpoint)

    def settled(self, operators: list[OperatorSnapshot]) -> None:
        pass

    def discarded(self, checkpoints: list[CheckpointId]) -> None:
        self.gone += checkpoints


class World:
    """One attempt of a job of three stages: a source, a middle that listens, and a sink."""

    def __init__(self, root: Path, attempt: str = "a1", **settings: Any) -> None:
        self.dir = JobDir(root, JobKey("count"))
        self.journal = Journal(self.dir.storage, self.dir.key)
        self.journal.entries()
        self.journal.append(AttemptStarted(attempt, 1.0, "host", 1))
        self.history = History(self.dir.storage)
        self.settings = _settings(**settings)
        self.store = CheckpointStore(
            self.dir,
            self.journal,
            AttemptId(attempt),
            "count",
            self.settings.retained,
            self.history,
            attempt,
        )
        self.files = FileKeeper()
        self.committer = Commits()
        self.job = Job()
        self.coordinator = Coordinator(
            STAGES,
            self.settings,
            self.store,
            self.files,
            CommitLane({SINK_UID: self.committer}, {SINK_UID: "files"}, self.store, 0),
            self.job,
        )

    def __enter__(self) -> World:
        self.coordinator.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.committer.may_go.set()
        self.coordinator.stop()

    # -- what stages do ---------------------------------------------------------------------

    def triggered(self, after: int = 0) -> CheckpointId:
        """Wait for the next checkpoint behind one that was, as a source does."""
        eventually(lambda: any(n > after for n in self.coordinator.live))
        return next(n for n in self.coordinator.live if n > after)

    def hand_over(
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

        def persist(owe: Owe) -> StageSnapshot:
            if persisting is not None:
                persisting.wait(20)
            name = STAGES[stage].name
            sink = None
            if stage == SINK:
                owe(name, [CommittableState(checkpoint, c) for c in prepared])
                sink = SinkState([], [])
            if error is not None:
                raise error
            operator = OperatorSnapshot(name, name, "map", 1, 128, 1, sink=sink)
            return StageSnapshot([operator], list(files))

        self.coordinator.hand_over(StageCut(stage, checkpoint, list(files), persist))

    def acknowledge(self, checkpoint: CheckpointId, *, prepared: Sequence[bytes] = ()) -> None:
        """Reach the barrier at all stages."""
        self.hand_over(SOURCE, checkpoint)
        self.hand_over(MIDDLE, checkpoint)
        self.hand_over(SINK, checkpoint, prepared=prepared)

    def complete(self, after: int = 0, *, prepared: Sequence[bytes] = ()) -> CheckpointId:
        """Take the next checkpoint to its end."""
        checkpoint = self.triggered(after)
        self.acknowledge(checkpoint, prepared=prepared)
        self.over(checkpoint)
        return checkpoint

    def over(self, checkpoint: CheckpointId) -> None:
        """Wait until a checkpoint is complete or aborted, and written down as that."""
        eventually(lambda: checkpoint not in self.coordinator.live)
        eventually(lambda: self.is_written_down(checkpoint))

    def all_end(self) -> None:
        for stage in STAGES:
            self.coordinator.ended(stage.id)

    # -- what is on disk --------------------------------------------------------------------

    def entries(self) -> list[JournalEntry]:
        return [entry for _, entry in Journal(self.dir.storage, self.dir.key).entries()]

    def record(self, checkpoint: CheckpointId) -> CheckpointRecord | None:
        return self.history.checkpoint(checkpoint)

    def is_written_down(self, checkpoint: CheckpointId) -> bool:
        record = self.record(checkpoint)
        return record is not None and record.status is not RecordStatus.PENDING

    def metadata(self, path: Path) -> CheckpointMetadata:
        return decode_metadata((path / "_metadata").read_bytes(), str(path))

    def owed_in(self, path: Path) -> list[bytes]:
        """What a checkpoint says its sink owes."""
        operator = self.metadata(path).operator(SINK_UID)
        assert operator is not None
        assert operator.sink is not None
        return [c.data for c in operator.sink.committables]


def _settings(**given: Any) -> CheckpointSettings:
    quiet: dict[str, Any] = {"enabled": True, "interval_s": None, "records": None}
    return replace(read_checkpoint_settings(Configuration()), **{**quiet, **given})


def another_driver(world: World) -> Journal:
    """Let somebody take the job over."""
    journal = Journal(world.dir.storage, world.dir.key)
    journal.entries()
    journal.append(AttemptStarted("a2", 2.0, "elsewhere", 2))
    return journal
