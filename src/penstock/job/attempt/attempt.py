"""One attempt of a job: its region loops and its coordinator, from start to end."""

from __future__ import annotations

import threading
from functools import partial

from penstock.checkpoint.coordinator.checkpoint_coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.job_callbacks import StageFacts
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.checkpoint.history import Recovery
from penstock.checkpoint.storage.completed_checkpoint_store import CompletedCheckpoint
from penstock.checkpoint.storage.metadata import OperatorSnapshot
from penstock.crash_points import CrashPoint, reach
from penstock.datastream.functions import CheckpointListener
from penstock.graph.plan import Stage
from penstock.graph.regions import PipelinedRegion
from penstock.ids import ChannelId, CheckpointId, StageId
from penstock.job.attempt.inputs import close_quietly, open_input
from penstock.job.attempt.sinks import AttemptSinks
from penstock.job.context import AttemptContext
from penstock.job.input.channel_view import ChannelView
from penstock.job.input.source_input import SourceInput
from penstock.job.input.stage_input import StageInput
from penstock.job.snapshot.stage_state import StageState
from penstock.job.stage.region_loop import RegionLoop
from penstock.job.stage.stage_execution import StageExecution


class Attempt:
    """Runs a plan once: one thread per pipelined region, until all have ended."""

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._signals = context.signals
        self._sinks = AttemptSinks(context)
        self._inputs: dict[StageId, StageInput] = {}
        """By the first stage of each region."""
        self._executions: list[StageExecution] = []
        self._threads: list[threading.Thread] = []
        self._is_cancelled = False
        self.coordinator: CheckpointCoordinator | None = None
        """None in BATCH mode."""
        self.last: CompletedCheckpoint | None = None
        """The checkpoint that ended the job, if one did."""

    # -- start ------------------------------------------------------------------------------

    def reset_sources(self) -> None:
        """Open every source at the positions of the restored checkpoint."""
        for region in self._context.regions:
            self._inputs[region.head.id] = open_input(self._context, region.head)
        reach(CrashPoint.RECOVERY_SOURCES_RESET)

    def reset_sinks(self) -> None:
        """Commit what the restored checkpoint holds, remove later output, open the sinks."""
        self._sinks.reset()

    def start(self) -> None:
        """Start the region loops and the coordinator; returns at once."""
        job = self._context.job
        if not job.settings.batch_mode:
            self.coordinator = CheckpointCoordinator(
                [_facts(s) for s in self._context.plan.stages],
                job.checkpoints,
                self._context.store,
                self._context.registry,
                self._sinks.commits,
                self._context.stats,
                self,
            )
        loops = [self._region_loop(region) for region in self._context.regions]
        for number, region in enumerate(self._context.regions):
            for stage in region.stages:
                self._context.monitor.stage(stage.id).region = number
        self._threads = [
            threading.Thread(target=loop.run, name=f"region-{i}", daemon=True)
            for i, loop in enumerate(loops)
        ]
        # Before the first record: with it the times of the first attempt begin.
        self._context.monitor.attempt_started()
        for thread in self._threads:
            thread.start()
        if self.coordinator is not None:
            self.coordinator.start()

    def record_recovery(self, recovery: Recovery) -> None:
        """Record how the attempt recovered; before `start`."""
        self._context.stats.record_recovery(recovery)

    def _region_loop(self, region: PipelinedRegion) -> RegionLoop:
        executions = [self._stage_execution(stage) for stage in region.stages]
        return RegionLoop(self._context, executions, self._inputs[region.head.id], self.coordinator)

    def _stage_execution(self, stage: Stage) -> StageExecution:
        opened = self._inputs.get(stage.id)
        source = opened if isinstance(opened, SourceInput) else None
        publishers = self._sinks.publishers_of(stage)
        record = partial(self._record_event, stage.name)
        execution = StageExecution(self._context, stage, publishers, source, record)
        self._executions.append(execution)
        return execution

    def keyed_states(self) -> list[StageState]:
        """Return the keyed state of every stage that has any; any thread may call."""
        states = [execution.state for execution in list(self._executions)]
        return [state for state in states if state.backend_name is not None]

    def _record_event(
        self, stage: str, checkpoint: CheckpointId, event: CheckpointEvent, what: str
    ) -> None:
        if self.coordinator is not None:
            self.coordinator.record(checkpoint, event, stage, what)

    def channels(self) -> ChannelView:
        """Return a view of the attempt's channels, valid while it runs and after."""
        context = self._context
        return ChannelView(
            context.plan, context.logs, self._blocked_channels, context.layout.channel
        )

    @property
    def pending_checkpoints(self) -> int:
        """The number of checkpoints in progress."""
        return 0 if self.coordinator is None else len(self.coordinator.view.checkpoints)

    def _blocked_channels(self) -> dict[ChannelId, CheckpointId]:
        blocked = [opened.blocked() for opened in self._inputs.values()]
        return {c: b.checkpoint for b in blocked if b is not None for c in b.bytes}

    # -- callbacks, in the coordinator's thread ---------------------------------------------

    def wake(self) -> None:
        """Wake the region loops."""
        self._signals.notify()

    def fail(self, error: BaseException) -> None:
        """End the attempt because of an error."""
        self._signals.fail(error)
        self._context.submitter.cancel()

    def completed(self, completed: CompletedCheckpoint, operators: list[OperatorSnapshot]) -> None:
        """Record what sources and sinks have in a completed snapshot."""
        is_savepoint = completed.is_savepoint
        self._context.positions.keep(completed.checkpoint, operators, savepoint=is_savepoint)
        self._sinks.add_snapshot(completed.checkpoint, operators, savepoint=is_savepoint)
        self._context.on_completed(completed)

    def notify_checkpoint_complete(self, operators: list[OperatorSnapshot]) -> None:
        """Let sources acknowledge to external systems what a completed checkpoint holds."""
        states = {o.uid: o.source for o in operators if o.source is not None}
        for uid, source in self._sources().items():
            if uid in states:
                source.notify_checkpoint_complete(states[uid])

    def notify_checkpoints_discarded(self, checkpoints: list[CheckpointId]) -> None:
        """Let sources and sinks remove what no snapshot needs any more."""
        self._context.positions.forget(checkpoints)
        for uid, source in self._sources().items():
            source.release(self._context.positions.lowest(uid))
        self._sinks.remove_snapshots(checkpoints)

    def _sources(self) -> dict[str, SourceInput]:
        heads = [region.head for region in self._context.regions]
        opened = {stage.head.uid: self._inputs[stage.id] for stage in heads}
        return {uid: input_ for uid, input_ in opened.items() if isinstance(input_, SourceInput)}

    def end(self, stopped_at: CompletedCheckpoint | None) -> None:
        """End all loops: the job has finished."""
        self.last = stopped_at
        self._signals.finish()

    # -- end --------------------------------------------------------------------------------

    def cancel(self, *, for_good: bool) -> None:
        """End between micro-batches: what is running is still published.

        With `for_good` sinks remove output that they prepared for no completed checkpoint.
        """
        self._is_cancelled = for_good
        self._signals.stop()

    def kill(self) -> None:
        """End now: running micro-batches are discarded."""
        self._signals.stop()
        self._context.submitter.cancel()

    @property
    def failure(self) -> BaseException | None:
        """Why the attempt failed, None if it did not."""
        return self._signals.failure

    def wait(self) -> None:
        """Wait until all threads have ended; then `failure` says how."""
        for thread in self._threads:
            thread.join()
        if self.coordinator is not None:
            self.coordinator.stop()
        if self.failure is None and not self._signals.stopping and self.last is None:
            self._commit_without_checkpoint()
        if self.failure is None and (self._is_cancelled or not self._signals.stopping):
            close_quietly(partial(self._sinks.sweep_at_end, is_cancelled=self._is_cancelled))
        self.close()

    def _commit_without_checkpoint(self) -> None:
        reach(CrashPoint.JOB_FINISHING)
        try:
            pending = {} if self.coordinator is None else self.coordinator.pending_committables()
            self._sinks.commit_without_checkpoint(pending)
        except BaseException as error:
            self._signals.fail(error)

    def close(self) -> None:
        """Close sources and sinks, also of an attempt that was never started."""
        # A region loop that was started closes its own input.
        if not self._threads:
            for opened in self._inputs.values():
                close_quietly(opened.close)
        self._sinks.close()


def _facts(stage: Stage) -> StageFacts:
    listens = any(isinstance(n.function, CheckpointListener) for n in stage.nodes)
    return StageFacts(stage.id, stage.name, listens)
