"""One attempt of a job: its loops and its coordinator, from their start to their end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.channel.log import UNBOUNDED, Bounds, ChannelLog
from penstock.checkpoint.commits import CommitLane
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.file_keeper import FileKeeper
from penstock.checkpoint.job_side import StageFacts
from penstock.checkpoint.metadata import CommittableState, OperatorSnapshot, SinkState
from penstock.checkpoint.settings import CheckpointSettings, Guarantee
from penstock.checkpoint.store import CheckpointStore, Completed
from penstock.checkpoint.story import StoryEvent
from penstock.connectors.committer import Committer, CommitterContext
from penstock.connectors.sink import PublisherContext, SinkPublisher
from penstock.connectors.source import EnumeratorContext
from penstock.crash_points import CrashPoint, reach
from penstock.datastream.functions import CheckpointListener
from penstock.errors import RestoreMismatchError
from penstock.graph.groups import Group
from penstock.graph.job_graph import Node
from penstock.graph.plan import Channel, Plan, Stage
from penstock.graph.transformation import Exchange, OperatorKind
from penstock.ids import ChannelId, CheckpointId, StageId
from penstock.job.board import Board
from penstock.job.channel_snapshots import ChannelSnapshots
from penstock.job.channel_view import ChannelView
from penstock.job.event_time import StageTime
from penstock.job.group_loop import GroupLoop, GroupParts
from penstock.job.inputs import (
    BroadcastFirstInput,
    ChannelInput,
    GroupedInput,
    SourceInput,
    StageInput,
)
from penstock.job.member import Member, MemberParts
from penstock.job.pace import Pace
from penstock.job.positions import RetainedPositions
from penstock.job.progress import Progress
from penstock.job.report import MicroBatchReport
from penstock.job.restore import RestoredJob
from penstock.job.retained_output import RetainedOutput
from penstock.job.settings import JobSettings
from penstock.job.stage_snapshot import StageSnapshots
from penstock.job.stage_state import RestoredStage, StageState
from penstock.job.submitter import Submitter
from penstock.recovery.channels import channel_ends
from penstock.task.layout import Layout, file_name

logger = logging.getLogger("penstock.job")


@dataclass(frozen=True, slots=True)
class AttemptParts:
    """What an attempt works with; made by the job for each."""

    plan: Plan
    groups: tuple[Group, ...]
    """The plan's stages as they run together."""
    layout: Layout
    settings: JobSettings
    clock: Callable[[], float]
    checkpoints: CheckpointSettings
    store: CheckpointStore
    submitter: Submitter
    files: FileKeeper
    restored: RestoredJob
    restored_from: CheckpointId
    """0 if it begins with nothing."""
    is_committed: bool
    """Whether all that sinks prepared in `restored` is known to be committed."""
    positions: RetainedPositions
    on_completed: Callable[[Completed], None]
    held_by_sinks: Callable[[Collection[int]], Mapping[str, list[bytes]] | None]
    """What sinks staged and some snapshot of this job needs, by uid; None if that is unknown.

    Snapshots with the given ids are left out.
    """
    report: Callable[[MicroBatchReport, Mapping[str, Mapping[str, int]]], None]


class Attempt:
    """Runs a plan once: one thread per group of stages, until all have ended."""

    def __init__(self, parts: AttemptParts) -> None:
        self._parts = parts
        self._plan = parts.plan
        self._layout = parts.layout
        self._settings = parts.settings
        self._board = Board()
        self._publishers: dict[int, SinkPublisher] = {}
        self._committers: dict[str, Committer] = {}
        self._inputs: dict[StageId, StageInput] = {}
        self._threads: list[threading.Thread] = []
        self._pace = Pace()
        self._ends = channel_ends(parts.plan)
        between = [c for group in parts.groups for c in group.outputs]
        self._logs = {c.id: ChannelLog(self._bounds(c)) for c in between}
        for channel, entries in parts.restored.channels.items():
            for entry in entries:
                self._logs[channel].append(entry)
        self._commits = CommitLane(
            self._committers,
            {n.uid: n.name for n in self._sinks()},
            parts.store,
            parts.checkpoints.committer_retries,
        )
        self._output: RetainedOutput | None = None
        self._is_cancelled = False
        self.coordinator: Coordinator | None = None
        self.last: Completed | None = None
        """The checkpoint the job ended with, if it did."""

    # -- to the start -----------------------------------------------------------------------

    def reset_sources(self) -> None:
        """Open every source where the restored checkpoint left it."""
        for group in self._parts.groups:
            self._inputs[group.head.id] = self._input(group.head)
        reach(CrashPoint.RECOVERY_SOURCES_RESET)

    def reset_sinks(self) -> None:
        """Commit what the restored checkpoint holds, sweep what came after it, open the sinks."""
        owed: dict[str, list[CommittableState]] = {}
        for node in self._sinks():
            context = CommitterContext(
                self._layout.job,
                self._layout.attempt,
                node.name,
                self._work_dir(node),
                self._layout.birth,
            )
            committer = node.function.committer(context)
            prepared = self._prepared(node)
            if committer is None and prepared:
                reason = "what it prepared there is not committed, and this sink cannot commit"
                raise RestoreMismatchError(node.name, "the snapshot", reason)
            if committer is not None:
                self._committers[node.uid] = committer
                owed[node.uid] = prepared
        self._commits.commit(self._parts.restored_from, owed)
        reach(CrashPoint.RECOVERY_COMMITTED)
        self._output = RetainedOutput(self._parts.held_by_sinks)
        self._sweep(self._output.earlier, self._parts.restored.sinks)
        for node in self._sinks():
            self._publishers[node.id] = self._publisher(node)

    def _prepared(self, node: Node) -> list[CommittableState]:
        """Return what a sink may still owe of what was restored.

        What the journal says to be committed is not asked for again: the system that would have
        to tell so may have forgotten by now.
        """
        state = self._parts.restored.sinks.get(node.uid)
        return [] if state is None or self._parts.is_committed else list(state.committables)

    def start(self) -> None:
        """Start the loops; returns at once."""
        if not self._settings.batch_mode:
            self.coordinator = Coordinator(
                [_facts(s) for s in self._plan.stages],
                self._parts.checkpoints,
                self._parts.store,
                self._parts.files,
                self._commits,
                self,
            )
        loops = [self._loop(group) for group in self._parts.groups]
        self._threads = [
            threading.Thread(target=loop.run, name=f"group-{i}", daemon=True)
            for i, loop in enumerate(loops)
        ]
        for thread in self._threads:
            thread.start()
        if self.coordinator is not None:
            self.coordinator.start()

    def channels(self) -> ChannelView:
        """Return its channels, to be looked at while it runs and after it."""
        inner = {channel for group in self._parts.groups for channel in group.inner}
        logs = {channel: log for channel, log in self._logs.items() if channel not in inner}
        return ChannelView(self._plan, logs, self._held, self._layout.channel)

    def _held(self) -> dict[ChannelId, CheckpointId]:
        held = [given.held() for given in self._inputs.values()]
        return {c: h.checkpoint for h in held if h is not None for c in h.bytes}

    # -- to the end -------------------------------------------------------------------------

    def wake(self) -> None:
        """Let every loop look again."""
        self._board.change()

    def fail(self, error: BaseException) -> None:
        """End the attempt because of an error."""
        self._board.fail(error)
        self._parts.submitter.cancel()

    def completed(self, completed: Completed, operators: list[OperatorSnapshot]) -> None:
        """Remember what sources and sinks have in a snapshot that is kept now."""
        self._parts.positions.keep(completed.checkpoint, operators)
        if self._output is not None:
            self._output.keep(completed.checkpoint, operators)
        self._parts.on_completed(completed)

    def settled(self, operators: list[OperatorSnapshot]) -> None:
        """Let sources tell the systems they read from how far that is done."""
        states = {o.uid: o.source for o in operators if o.source is not None}
        for group in self._parts.groups:
            given, head = self._inputs[group.head.id], group.head.head
            if isinstance(given, SourceInput) and head.uid in states:
                given.completed(states[head.uid].positions)

    def discarded(self, checkpoints: list[CheckpointId]) -> None:
        """Let sources and sinks forget what no snapshot needs any more."""
        self._parts.positions.forget(checkpoints)
        for group in self._parts.groups:
            given = self._inputs[group.head.id]
            if isinstance(given, SourceInput):
                given.release(self._parts.positions.lowest(group.head.head.uid))
        if self._output is not None:
            self._commits.discard(self._output.forget(checkpoints))

    def end(self, stopped_at: Completed | None) -> None:
        """End all loops: the job is over."""
        self.last = stopped_at
        self._board.finish()

    def cancel(self, *, for_good: bool) -> None:
        """End between micro-batches: what is running is still published.

        For good: sinks give up what they have prepared and no checkpoint holds.
        """
        self._is_cancelled = for_good
        self._board.stop()

    def kill(self) -> None:
        """End now: what is running is thrown away."""
        self._board.stop()
        self._parts.submitter.cancel()

    @property
    def failure(self) -> BaseException | None:
        """What the attempt failed of."""
        return self._board.failure

    def wait(self) -> None:
        """Wait until all threads have ended; then `failure` says how."""
        for thread in self._threads:
            thread.join()
        if self.coordinator is not None:
            self.coordinator.stop()
        if self._board.failure is None and not self._board.stopping and self.last is None:
            self._commit_without_checkpoint()
        if self._board.failure is None and (self._is_cancelled or not self._board.stopping):
            _quietly(self._sweep_at_the_end)
        self.close()

    def close(self) -> None:
        """Give back what sources and sinks hold; also for an attempt that never started."""
        if not self._threads:
            for given in self._inputs.values():
                _quietly(given.close)
        for publisher in self._publishers.values():
            _quietly(publisher.close)
        for committer in self._committers.values():
            _quietly(committer.close)

    def _commit_without_checkpoint(self) -> None:
        """Show what sinks hold at the end of a job that takes no checkpoints."""
        reach(CrashPoint.JOB_FINISHING)
        try:
            owed = {} if self.coordinator is None else self.coordinator.owed()
            # Behind all savepoints that were taken: sinks go by the order of ids.
            last = self._parts.store.next_id()
            for node in self._sinks():
                cut = self._publishers[node.id].at_barrier(last, roll_all=True)()
                mine = owed.setdefault(node.uid, [])
                mine += [CommittableState(last, data) for data in cut.committables]
            CommitLane(
                self._committers,
                {n.uid: n.name for n in self._sinks()},
                self._parts.store,
                self._parts.checkpoints.committer_retries,
            ).commit(CheckpointId(0), {uid: c for uid, c in owed.items() if c})
        except BaseException as error:
            self._board.fail(error)

    def _sweep_at_the_end(self) -> None:
        # The checkpoints of a job that came to its end are deleted next. Those of a cancelled one
        # may be kept: it only gives up what it prepared for one that was not completed.
        gone = () if self._is_cancelled else self._parts.store.retained
        self._sweep(self._parts.held_by_sinks(gone), {})

    def _sweep(
        self, held: Mapping[str, Sequence[bytes]] | None, restored: Mapping[str, SinkState]
    ) -> None:
        """Let sinks remove what no snapshot and no commit will ever ask for."""
        if held is None:
            return
        for uid, committer in self._committers.items():
            state = restored.get(uid)
            mine = [] if state is None else [*state.state, *(c.data for c in state.committables)]
            committer.sweep([*held.get(uid, ()), *mine])

    # -- parts ------------------------------------------------------------------------------

    def _sinks(self) -> list[Node]:
        return [n for s in self._plan.stages for n in s.nodes if n.kind is OperatorKind.SINK]

    def _work_dir(self, node: Node) -> Path:
        return self._layout.durable_root / file_name(node.uid)

    def _publisher(self, node: Node) -> SinkPublisher:
        state = self._parts.restored.sinks.get(node.uid)
        publisher: SinkPublisher = node.function.publisher(
            PublisherContext(
                parallelism=node.parallelism,
                name=node.name,
                work_dir=self._work_dir(node),
                job=self._layout.job,
                attempt=self._layout.attempt,
                checkpointed=self._parts.checkpoints.enabled,
                restored=() if state is None else state.state,
                birth=self._layout.birth,
            )
        )
        return publisher

    def _loop(self, group: Group) -> GroupLoop:
        return GroupLoop(
            GroupParts(
                members=[self._member(stage) for stage in group.stages],
                layout=self._layout,
                settings=self._settings,
                clock=self._parts.clock,
                submitter=self._parts.submitter,
                board=self._board,
                input=self._inputs[group.head.id],
                outputs={c.id: self._logs[c.id] for c in group.outputs},
                pace=self._pace,
                coordinator=self.coordinator,
                restored_from=self._parts.restored_from,
                report=self._parts.report,
            )
        )

    def _member(self, stage: Stage) -> Member:
        restored = self._parts.restored.stages.get(stage.id, RestoredStage())
        state = StageState(
            stage,
            self._layout,
            self._settings,
            self._parts.submitter,
            self._parts.files,
            restored,
            self._parts.clock,
        )
        publishers = {n.id: self._publishers[n.id] for n in stage.nodes if n.id in self._publishers}
        given = self._inputs.get(stage.id)
        source = given if isinstance(given, SourceInput) else None
        channels = ChannelSnapshots(
            [self._ends[c.id] for c in stage.inputs if c.id in self._logs],
            self._layout,
            self._parts.store.own_files,
            partial(self._tell, stage.name),
        )
        snapshots = StageSnapshots(stage, state, publishers, source, channels, self._layout.durable)
        time = StageTime(stage, restored.time, self._parts.clock(), self._ends)
        return Member(MemberParts(stage, self._layout, state, publishers, snapshots, time))

    def _tell(self, stage: str, checkpoint: CheckpointId, event: StoryEvent, what: str) -> None:
        if self.coordinator is not None:
            self.coordinator.tell(checkpoint, event, stage, what)

    def _input(self, stage: Stage) -> StageInput:
        if stage.is_source:
            return self._source(stage)
        mine = {c.id: self._logs[c.id] for c in stage.inputs}
        if self._is_grouped(stage):
            return GroupedInput(mine, stage.parallelism, self._settings.sizes.maximum)
        forward = [c.id for c in stage.inputs if c.exchange is Exchange.FORWARD]
        if self._waits_for_broadcast(stage):
            first = [c.id for c in stage.inputs if c.input == 1]
            return BroadcastFirstInput(mine, stage.parallelism, forward, first)
        return ChannelInput(mine, stage.parallelism, forward)

    def _source(self, stage: Stage) -> SourceInput:
        uid = stage.head.uid
        durable = self._settings.ingestion_dir or self._layout.durable_root
        enumerator = stage.head.function.enumerator(
            EnumeratorContext(
                parallelism=stage.parallelism,
                work_dir=durable / file_name(uid),
                clock=time.time,
                wake=self._board.change,
                job=self._layout.job,
                attempt=self._layout.attempt,
                checkpointed=self._parts.checkpoints.enabled,
                life=f"{self._layout.birth} {self._layout.life}",
            )
        )
        progress = None
        restored = self._parts.restored.sources.get(uid)
        positions = {} if restored is None else restored.positions
        if self._parts.checkpoints.mode is Guarantee.AT_MOST_ONCE:
            progress = Progress(self._layout.durable_root, uid)
            positions = {**positions, **progress.read()}
        given = SourceInput(
            enumerator,
            stage.parallelism,
            self._settings.poll_seconds,
            None if progress is None else progress.write,
        )
        try:
            if restored is not None and restored.memory:
                enumerator.recall(restored.memory)
            if restored is not None and restored.kept is not None:
                enumerator.recall_files(Path(restored.kept.directory))
            enumerator.start(positions)
        except BaseException:
            _quietly(given.close)
            raise
        return given

    def _is_grouped(self, stage: Stage) -> bool:
        return self._settings.batch_mode and stage.head.kind.is_keyed

    def _waits_for_broadcast(self, stage: Stage) -> bool:
        return self._settings.batch_mode and stage.head.kind.has_broadcast_side

    def _bounds(self, channel: Channel) -> Bounds:
        # Grouping by key begins at the end of the input: a bound would wait for it forever.
        consumer = self._plan.stages[channel.consumer]
        waits = self._is_grouped(consumer) or self._waits_for_broadcast(consumer)
        return UNBOUNDED if waits else self._settings.bounds


def _facts(stage: Stage) -> StageFacts:
    listens = any(isinstance(n.function, CheckpointListener) for n in stage.nodes)
    return StageFacts(stage.id, stage.name, stage.is_source, listens)


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception:
        logger.warning("closing a source or sink failed", exc_info=True)
