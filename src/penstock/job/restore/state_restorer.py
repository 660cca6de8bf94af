"""Loads the state of a snapshot into a new attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from msgspec.structs import replace

from penstock.channel.log import Entry, EntryKind
from penstock.checkpoint.barriers.alignment import NO_BARRIER
from penstock.checkpoint.barriers.channel_state_files import SegmentCopy, copy_from_checkpoint
from penstock.checkpoint.storage import metadata
from penstock.common.storage_url import Location, StorageUrl
from penstock.connectors.contracts.snapshot_files import (
    SnapshotFiles,
    fetch_snapshot_files,
    verify_snapshot_files,
)
from penstock.graph.plan import Plan, Stage
from penstock.ids import ChannelId, CheckpointId, OperatorUid, StageId
from penstock.job import state_jobs
from penstock.job.restore.snapshot_reader import Snapshot
from penstock.job.settings import JobSettings
from penstock.job.state_jobs import LoadWork, PreviousState, RestoreWork
from penstock.job.submitter import Submitter
from penstock.recovery.channel_matching import ChannelEndpoints, channel_endpoints
from penstock.recovery.operator_matching import is_keyed
from penstock.state.backends.refs import StagedName, StateRef, UnresolvedStateLocation
from penstock.state.key_groups import key_group_range
from penstock.state.operator.states import redistribute
from penstock.task.layout import AttemptLayout, file_name, state_location


@dataclass(frozen=True, slots=True)
class RestoredStage:
    """The state that a stage starts with."""

    version: int = 0
    """The micro-batch up to which it holds all effects."""
    keyed: Sequence[StateRef] = ()
    operator_state: Sequence[Mapping[str, bytes]] = ()
    """Per subtask, by operator uid."""
    is_restored: bool = False
    is_durable: bool = False
    """Whether the files of the keyed state are those of a checkpoint, which verified them."""
    time: Mapping[str, metadata.OperatorTime] = field(default_factory=dict)
    """By operator uid."""


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """What the stages, sources, sinks and channels of an attempt start with."""

    checkpoint: CheckpointId = NO_BARRIER
    """The snapshot it was restored from, 0 if none."""
    pending: Mapping[str, Sequence[metadata.CommittableState]] = field(default_factory=dict)
    """By sink uid: the committables that may not be committed yet."""
    stages: Mapping[StageId, RestoredStage] = field(default_factory=dict)
    sources: Mapping[str, metadata.SourceState] = field(default_factory=dict)
    sinks: Mapping[str, metadata.SinkState] = field(default_factory=dict)
    channels: Mapping[ChannelId, list[Entry]] = field(default_factory=dict)
    """In-flight data, to be read before anything new."""


@dataclass(frozen=True, slots=True)
class StateRestorer:
    """Restores stages, sources, sinks and channels from a snapshot."""

    plan: Plan
    layout: AttemptLayout
    settings: JobSettings
    submitter: Submitter

    def restore(self, snapshot: Snapshot) -> RestoredJob:
        """Load all state, verifying every file on the way.

        Raises:
            CorruptStateError: a file of the snapshot is missing, damaged or another one.
        """
        operators = {o.uid: o for o in snapshot.metadata.operators}
        return RestoredJob(
            checkpoint=CheckpointId(snapshot.metadata.checkpoint),
            pending={o.uid: snapshot.committed.pending(o) for o in operators.values()},
            stages={s.id: self._stage(s, snapshot, operators) for s in self.plan.stages},
            sources={
                o.uid: _source(
                    o.source, snapshot, self.layout.root / "source" / file_name(OperatorUid(o.uid))
                )
                for o in operators.values()
                if o.source is not None
            },
            sinks={o.uid: o.sink for o in operators.values() if o.sink is not None},
            channels=self._channels(snapshot),
        )

    def _channels(self, snapshot: Snapshot) -> dict[ChannelId, list[Entry]]:
        ends = channel_endpoints(self.plan)
        return {
            channel: restore_channel(ends[channel], state, snapshot.path, self.layout)
            for channel, state in snapshot.in_flight.items()
        }

    def _stage(
        self, stage: Stage, snapshot: Snapshot, operators: Mapping[str, metadata.OperatorSnapshot]
    ) -> RestoredStage:
        head = operators.get(stage.head.uid)
        version, keyed, is_durable = 0, list[StateRef](), False
        if head is not None and is_keyed(head) and not self.settings.batch_mode:
            is_durable = self._can_reuse_files(stage, snapshot, head)
            if is_durable:
                version, keyed = head.version, self._load(stage, head)
            else:
                keyed = self._redistribute(stage, snapshot, head)
        restored = [operators[n.uid] for n in stage.nodes if n.uid in operators]
        operator_state: list[dict[str, bytes]] = [{} for _ in range(stage.parallelism)]
        for operator in (o for o in restored if o.operator_state):
            shares = redistribute(operator.operator_state, stage.parallelism)
            for subtask, share in enumerate(shares):
                operator_state[subtask][operator.uid] = share
        return RestoredStage(
            version,
            keyed,
            operator_state,
            is_restored=True,
            is_durable=is_durable,
            time={operator.uid: operator.time for operator in restored},
        )

    def _can_reuse_files(
        self, stage: Stage, snapshot: Snapshot, old: metadata.OperatorSnapshot
    ) -> bool:
        """Whether every subtask continues with the files it had: same backend and parallelism."""
        same = old.backend == self.settings.backend and len(old.keyed) == stage.parallelism
        return snapshot.is_own and same and not old.savepoint

    def _load(self, stage: Stage, old: metadata.OperatorSnapshot) -> list[StateRef]:
        """Let tasks build the local copies of the state on their hosts."""
        work = [
            LoadWork(
                self.layout.attempt_dirs,
                self.settings.backend,
                self.layout.place(stage.head.uid, i),
                ref,
            )
            for i, ref in enumerate(old.keyed)
        ]
        self.submitter.run_per_subtask(stage.id, "load", state_jobs.load, work)
        return old.keyed

    def _redistribute(
        self, stage: Stage, snapshot: Snapshot, old: metadata.OperatorSnapshot
    ) -> list[StateRef]:
        """Build new states, at version 0, from the key groups that each subtask owns now."""
        backend, head = self.settings.backend, stage.head
        places = [self.layout.place(head.uid, i) for i in range(stage.parallelism)]
        uid, local = OperatorUid(old.uid), places[0].local
        previous = [state_location(snapshot.shared, uid, i) for i in range(len(old.keyed))]
        states = [
            PreviousState(
                old.backend or "",
                UnresolvedStateLocation(place.shared_dir, local / f"old-{i}", place.store),
                ref,
            )
            for i, (place, ref) in enumerate(zip(previous, old.keyed, strict=True))
        ]
        work = [
            RestoreWork(
                self.layout.attempt_dirs,
                backend,
                place,
                StagedName(self.layout.attempt, 0, 0, i, 0),
                key_group_range(head.max_parallelism, stage.parallelism, i),
                states,
                snapshot.path if old.savepoint else None,
                old.savepoint,
                head.name,
                "" if snapshot.may_unpickle else str(snapshot.path),
            )
            for i, place in enumerate(places)
        ]
        return self.submitter.run_per_subtask(stage.id, "restore", state_jobs.restore, work)


def _source(source: metadata.SourceState, snapshot: Snapshot, copies: Path) -> metadata.SourceState:
    """Verify the files of a source, and resolve their directory; what is in a store is copied."""
    if source.files is None:
        return source
    directory = source.files.located_in(snapshot.path)
    if isinstance(directory, StorageUrl):
        fetch_snapshot_files(directory, source.files.files, copies)
        directory = copies
    else:
        verify_snapshot_files(directory, source.files.files)
    return replace(source, files=SnapshotFiles(str(directory), source.files.files))


def restore_channel(
    end: ChannelEndpoints, state: metadata.ChannelState, checkpoint: Location, layout: AttemptLayout
) -> list[Entry]:
    """Copy in-flight data to where the new attempt reads it; return it as log entries.

    Raises:
        CorruptStateError: a file of the checkpoint is missing or damaged.
    """
    names = (f"restored-{number}.arrow" for number in count())
    # New names: an attempt of another job may have used the old ones.
    entries = [[replace(segment, name=next(names)) for segment in e] for e in state.entries]
    copy_from_checkpoint(
        SegmentCopy(
            segment,
            checkpoint / metadata.in_flight_file(end.consumer.uid, state, old),
            layout.channel(end.channel.id) / segment.name,
        )
        for segment, old in zip(chain(*entries), chain(*state.entries), strict=True)
    )
    return [Entry(EntryKind.DATA, tuple(segments)) for segments in entries]
