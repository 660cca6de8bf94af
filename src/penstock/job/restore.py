"""From a snapshot to what the stages of a job begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from penstock.channel.log import Entry
from penstock.checkpoint.metadata import (
    ChannelState,
    CheckpointMetadata,
    OperatorSnapshot,
    SinkState,
    SourceState,
)
from penstock.connectors.kept_files import KeptFiles, prove_files
from penstock.graph.plan import Plan, Stage
from penstock.ids import ChannelId, OperatorUid, StageId
from penstock.job import state_jobs
from penstock.job.channel_snapshots import restore_channel
from penstock.job.settings import JobSettings
from penstock.job.stage_state import RestoredStage
from penstock.job.state_jobs import LoadWork, OldState, RestoreWork
from penstock.job.submitter import Submitter
from penstock.recovery.channels import channel_ends
from penstock.recovery.match import is_keyed
from penstock.state.backends.base import RemotePlace, StagedName, StateRef
from penstock.state.key_groups import key_group_range
from penstock.state.operator_state import redistribute
from penstock.task.layout import Layout, file_name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was read: a checkpoint of this job, one of another, or a savepoint."""

    metadata: CheckpointMetadata
    path: Path
    is_own: bool
    """Whether its files are this job's, which goes on using them."""
    is_committed: bool = False
    """Whether the journal says that sinks have committed all that it holds."""
    in_flight: Mapping[ChannelId, ChannelState] = field(default_factory=dict)
    """Its records in flight, by the channels of the job that take them."""

    @property
    def shared(self) -> Path:
        """Where the state files of a checkpoint lie."""
        return self.path.parent / "shared"


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """What all stages, sources and sinks of a job begin with."""

    stages: Mapping[StageId, RestoredStage] = field(default_factory=dict)
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    sinks: Mapping[str, SinkState] = field(default_factory=dict)
    channels: Mapping[ChannelId, list[Entry]] = field(default_factory=dict)
    """What was in flight, to be read before anything new."""


class StateRestorer:
    """Brings the state of a snapshot into the places of a new attempt."""

    def __init__(
        self, plan: Plan, layout: Layout, settings: JobSettings, submitter: Submitter
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._settings = settings
        self._submitter = submitter

    def restore(self, snapshot: Snapshot) -> RestoredJob:
        """Load all state, proving every file on the way.

        Raises:
            CorruptStateError: a file of the snapshot is missing, damaged or another one.
        """
        operators = {o.uid: o for o in snapshot.metadata.operators}
        return RestoredJob(
            stages={s.id: self._stage(s, snapshot, operators) for s in self._plan.stages},
            sources={
                o.uid: _source(o.source, snapshot)
                for o in operators.values()
                if o.source is not None
            },
            sinks={o.uid: o.sink for o in operators.values() if o.sink is not None},
            channels=self._channels(snapshot),
        )

    def _channels(self, snapshot: Snapshot) -> dict[ChannelId, list[Entry]]:
        ends = channel_ends(self._plan)
        return {
            channel: restore_channel(ends[channel], state, snapshot.path, self._layout)
            for channel, state in snapshot.in_flight.items()
        }

    def _stage(
        self, stage: Stage, snapshot: Snapshot, operators: Mapping[str, OperatorSnapshot]
    ) -> RestoredStage:
        old = operators.get(stage.head.uid)
        version, is_durable = 0, False
        keyed: list[StateRef] = []
        if old is not None and is_keyed(old) and not self._settings.batch_mode:
            if self._goes_on(stage, snapshot, old):
                version, keyed, is_durable = old.version, self._load(stage, old), True
            else:
                keyed = self._gather(stage, snapshot, old)
        lists: list[dict[str, bytes]] = [{} for _ in range(stage.parallelism)]
        for node in stage.nodes:
            mine = operators.get(node.uid)
            if mine is not None and mine.operator_state:
                for subtask, state in enumerate(
                    redistribute(mine.operator_state, stage.parallelism)
                ):
                    lists[subtask][node.uid] = state
        return RestoredStage(
            version,
            keyed,
            lists,
            is_restored=True,
            is_durable=is_durable,
            time={n.uid: operators[n.uid].time for n in stage.nodes if n.uid in operators},
        )

    def _goes_on(self, stage: Stage, snapshot: Snapshot, old: OperatorSnapshot) -> bool:
        """Whether every subtask goes on with the very state it had, files and all."""
        same = old.backend == self._settings.backend and len(old.keyed) == stage.parallelism
        return snapshot.is_own and same and not old.savepoint

    def _load(self, stage: Stage, old: OperatorSnapshot) -> list[StateRef]:
        """Let the hosts build their copies of the state."""
        work = [
            LoadWork(
                self._layout.on_hosts,
                self._settings.backend,
                self._layout.place(stage.head.uid, i),
                ref,
            )
            for i, ref in enumerate(old.keyed)
        ]
        self._submitter.each(stage.id, "load", state_jobs.load, work)
        return old.keyed

    def _gather(self, stage: Stage, snapshot: Snapshot, old: OperatorSnapshot) -> list[StateRef]:
        """Make new states, at version 0, of the key groups that belong to each subtask now."""
        backend, head = self._settings.backend, stage.head
        places = [self._layout.place(head.uid, i) for i in range(stage.parallelism)]
        directory = snapshot.shared / file_name(OperatorUid(old.uid))
        states = [
            OldState(
                old.backend or "",
                RemotePlace(directory / str(i), places[0].local / f"old-{i}"),
                r,
            )
            for i, r in enumerate(old.keyed)
        ]
        work = [
            RestoreWork(
                self._layout.on_hosts,
                backend,
                place,
                StagedName(self._layout.attempt, 0, 0, i, 0),
                key_group_range(head.max_parallelism, stage.parallelism, i),
                states,
                snapshot.path if old.savepoint else None,
                old.savepoint,
                head.name,
            )
            for i, place in enumerate(places)
        ]
        return self._submitter.each(stage.id, "restore", state_jobs.restore, work)


def _source(source: SourceState, snapshot: Snapshot) -> SourceState:
    """Prove the files that a source kept, and tell where they lie."""
    if source.kept is None:
        return source
    directory = source.kept.seen_from(snapshot.path)
    prove_files(directory, source.kept.files)
    return replace(source, kept=KeptFiles(str(directory), source.kept.files))
