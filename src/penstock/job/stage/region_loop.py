"""The loop of a pipelined region: poll input, run a micro-batch, publish it, snapshot at barriers.

A region is one stage, or several that exchange records by the engine's shuffle and run every
micro-batch together. The order inside `_publish` is the protocol: the manifest first, everything
that others can see after it. The loop never holds a lock while a micro-batch runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from penstock.channel.log import END_OF_INPUT, Entry, EntryKind, barrier
from penstock.checkpoint.coordinator.checkpoint_coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.view import CoordinatorView
from penstock.checkpoint.event_log import CheckpointEvent
from penstock.crash_points import CrashPoint, reach
from penstock.ids import CheckpointId, StageId
from penstock.job.context import AttemptContext
from penstock.job.input.in_flight_data_collector import InFlightDataCollector
from penstock.job.input.stage_input import MicroBatchInput, StageInput
from penstock.job.snapshot.stage_snapshotter import (
    AlignmentStats,
    AlignmentTracker,
    SnapshotRequest,
)
from penstock.job.stage import stage_execution
from penstock.job.stage.manifest import Manifest, write_manifest
from penstock.job.stage.micro_batch_runner import MicroBatchRunner, StoppedError
from penstock.job.stage.micro_batch_size import MicroBatchSizer
from penstock.job.time.region_time import RegionTime
from penstock.task.messages import CheckpointNotification, MicroBatchTime, SubtaskWork

logger = logging.getLogger("penstock.job")

MANIFESTS_KEPT = 100
"""Per region; kept to look into, no longer needed once the next one is written."""


StageResults = Sequence[tuple[stage_execution.StageExecution, stage_execution.MicroBatchResult]]


class RegionLoop:
    """Runs one region from its first micro-batch to its last, in a thread of its own."""

    def __init__(
        self,
        context: AttemptContext,
        executions: Sequence[stage_execution.StageExecution],
        input_: StageInput,
        coordinator: CheckpointCoordinator | None,
    ) -> None:
        """Drive the stages, in topological order; the first one reads the input.

        There is no coordinator in BATCH mode, where there are no barriers.
        """
        self._context = context
        self._signals = context.signals
        self._executions = executions
        self._head = executions[0]
        self._stage = self._head.stage
        self._input = input_
        self._coordinator = coordinator
        outputs = [c for e in executions for c in e.stage.outputs if c.id in context.logs]
        self._outputs = {c.id: context.logs[c.id] for c in outputs}
        self._runner = MicroBatchRunner(context, executions)
        self._sizer = MicroBatchSizer(context.job.settings.sizes)
        self._time = RegionTime(
            [e.time for e in executions], outputs, context.job.settings.watermark_seconds
        )
        # All loops report their watermarks before the first of them starts.
        self._is_ahead()
        self._alignment = AlignmentTracker()
        self._monitors = [context.monitor.stage(e.stage.id) for e in executions]
        self._last_checkpoint = context.restored.checkpoint
        self._has_ended = False
        self._allowed = 0
        """How many records the current micro-batch may have."""

    def run(self) -> None:
        """Process input until its end, a failure, or a stop."""
        try:
            self._update_splits()
            # Restored watermarks are sent again: a consumer may have stored an older status.
            self._forward_watermarks()
            while (batch := self._next_input()) is not None:
                self._process(batch)
                if batch.end_of_input:
                    self._end_of_input()
                if batch.barrier is not None:
                    self._take_snapshot(batch.barrier, batch.channel_state)
                if self._has_ended and self._coordinator is None:
                    return
        except StoppedError:
            pass
        except BaseException as error:
            if self._signals.fail(error):
                logger.debug("Stage %s failed", self._stage.name, exc_info=True)
            self._context.submitter.cancel()
        finally:
            for execution in self._executions:
                execution.state.close()
            self._input.close()

    # -- waiting for input ------------------------------------------------------------------

    def _next_input(self) -> MicroBatchInput | None:
        """Wait for the input of the next micro-batch; None at the end of the job."""
        while True:
            # Read before everything else: a change that comes later ends the wait below at once.
            seen = self._signals.version
            if self._signals.stopping:
                return None
            if self._signals.is_finished:
                self._notify_last_checkpoint()
                return None
            is_behind = self._stage.is_source and self._is_ahead()
            is_blocked = self._is_backpressured() or is_behind
            is_full = is_blocked or self._should_wait_for_consumers()
            size = 0 if is_full else self._sizer.next_size(self._outputs)
            batch = self._input.poll(size, self._last_checkpoint, self._view)
            self._monitors[0].observe_pending(self._input.pending_records())
            self._observe_alignment(batch)
            self._observe_input(batch, is_blocked=is_blocked, is_full=is_full)
            if batch is not None:
                self._allowed = size
                return batch
            if size:
                self._context.load.record_no_input(self._stage.id)
            has_work = self._has_notifications() or self._has_time_work()
            if has_work and not is_full and not self._has_passed_last_checkpoint():
                return self._no_input()
            self._signals.wait(seen, None if is_full else self._wait_seconds())

    def _is_backpressured(self) -> bool:
        """Whether no records may be processed, because a channel downstream is full."""
        # Blocking inside a micro-batch instead would hold the cores that the consumer needs.
        is_full = any(log.is_full() for log in self._outputs.values())
        for monitor in self._monitors:
            monitor.observe_backpressure(is_blocked=is_full)
        return is_full

    def _should_wait_for_consumers(self) -> bool:
        """Whether a micro-batch would be faster if it started a little later.

        Where micro-batches take hardly longer than empty ones, running more of them at once only
        slows them down: a record arrives earlier if the records sent before it are processed
        first, and the next micro-batch takes along what arrives meanwhile.
        """
        outputs = self._outputs.values()
        return self._sizer.is_light and bool(outputs) and all(o.will_drain_soon for o in outputs)

    def _is_ahead(self) -> bool:
        """Whether the source must wait for others of its watermark alignment group."""
        group, aligned = self._context.alignment, self._head.time.aligned_operators()
        for uid, (alignment, status) in aligned.items():
            if group.report(alignment, uid, status):
                self._signals.notify()
        return any(group.is_ahead(alignment, uid) for uid, (alignment, _) in aligned.items())

    def _view(self) -> CoordinatorView:
        return CoordinatorView() if self._coordinator is None else self._coordinator.view

    def _observe_alignment(self, batch: MicroBatchInput | None) -> None:
        if self._coordinator is None:
            return
        first = self._alignment.observe(self._input.blocked(), batch, time.time())
        if first is not None:
            self._coordinator.record(first, CheckpointEvent.BARRIER_SEEN, self._stage.name)

    def _observe_input(
        self, batch: MicroBatchInput | None, *, is_blocked: bool, is_full: bool
    ) -> None:
        if self._has_ended:
            return
        is_paused = self._view().sources_paused
        self._time.observe_input(
            self._context.job.monotonic(),
            set() if batch is None else batch.splits(),
            blocked=is_blocked or is_paused or self._input.blocked() is not None,
            # A source that has a barrier to emit was not polled for records.
            polled=not is_full and (batch is None or batch.barrier is None),
        )

    def _has_notifications(self) -> bool:
        """Whether functions wait for a checkpoint notification that no record brings along."""
        coordinator = self._coordinator
        return coordinator is not None and any(
            e.batch > 0 and coordinator.has_notifications(e.stage.id) for e in self._executions
        )

    def _has_passed_last_checkpoint(self) -> bool:
        """Whether the job ends with the last snapshot of this region.

        What fires after it would fire again when that snapshot is restored. Functions get their
        notifications when the job has ended, or when that checkpoint has failed.
        """
        last = self._view().last_checkpoint
        return last is not None and last <= self._last_checkpoint

    def _has_time_work(self) -> bool:
        """Whether a timer is due, or an input became idle."""
        return not self._has_ended and self._time.has_work(self._context.job.clock())

    def _wait_seconds(self) -> float | None:
        waits = [self._input.wait_seconds()]
        if not self._has_ended and not self._has_passed_last_checkpoint():
            job = self._context.job
            waits.append(self._time.wait_seconds(job.clock(), job.monotonic()))
        return min((w for w in waits if w is not None), default=None)

    def _no_input(self) -> MicroBatchInput:
        return MicroBatchInput([SubtaskWork()] * self._stage.parallelism)

    # -- one micro-batch --------------------------------------------------------------------

    def _process(self, batch: MicroBatchInput) -> None:
        """Run and publish a micro-batch, or only consume its input if no task is needed."""
        goals = self._time.plan(batch.watermarks, end=batch.end_of_input)
        request = self._request(batch, self._time.micro_batch_times(goals))
        closes = batch.end_of_input and any(e.has_functions_to_close() for e in self._executions)
        is_due = self._time.has_timer_due(goals, self._context.job.clock())
        if batch.is_empty and not any(request.notifications.values()) and not closes and not is_due:
            self._time.advance(goals)
            self._consume(batch, 0)
            self._forward_watermarks()
            return
        for execution in self._executions:
            execution.state.apply_compacted()
        run = self._runner.run(request)
        self._time.advance(goals)
        self._publish(batch, run)

    def _request(
        self, batch: MicroBatchInput, times: Mapping[StageId, MicroBatchTime]
    ) -> stage_execution.MicroBatchRequest:
        notifications = {}
        # A barrier or the end of input must not start tasks only to deliver notifications.
        if not (batch.is_empty and (batch.barrier or batch.end_of_input)):
            notifications = self._take_notifications()
        return stage_execution.MicroBatchRequest(
            batch, notifications, self._last_checkpoint, self._has_listeners(), times=times
        )

    def _take_notifications(self) -> dict[StageId, list[CheckpointNotification]]:
        coordinator = self._coordinator
        if coordinator is None:
            return {}
        return {e.stage.id: coordinator.take_notifications(e.stage.id) for e in self._executions}

    def _has_listeners(self) -> bool:
        coordinator = self._coordinator
        return coordinator is not None and any(
            coordinator.listens(e.stage.id) for e in self._executions
        )

    def _publish(self, batch: MicroBatchInput, run: stage_execution.MicroBatchRun) -> None:
        """Publish a micro-batch: a crash before the manifest undoes it, one after it does not."""
        # Sinks that do not commit are fenced by nothing but this.
        self._context.check_owner()
        results = [
            (execution, execution.result(acks, self._outputs))
            for execution, acks in zip(self._executions, run.acks, strict=True)
        ]
        self._write_manifest(batch, results, run.try_number)
        for execution, result in results:
            execution.apply_published(result)
            execution.time.apply_published(result.acks, self._context.job.monotonic())
        self._update_splits()
        records = results[0][1].records
        for channel, segments in (s for _, r in results for s in r.segments.items() if s[1]):
            entry = Entry(EntryKind.DATA, tuple(segments))
            self._sizer.observe_output(channel, entry.rows, records)
            self._outputs[channel].append(entry)
        # After the records that the watermarks refer to.
        self._forward_watermarks()
        for execution, result in results:
            execution.publish_sinks(result)
        # Last: consuming deletes the input, and wakes the consumers of the output.
        self._consume(batch, records)
        if self._coordinator is not None and self._stage.is_source:
            self._coordinator.records_read(records)
        self._finish_publish(batch, run, results)

    def _write_manifest(
        self, batch: MicroBatchInput, results: StageResults, try_number: int
    ) -> None:
        manifest = Manifest(
            [e.manifest(r, try_number, batch if e is self._head else None) for e, r in results]
        )
        layout, number = self._context.layout, self._head.batch
        reach(CrashPoint.STAGE_BEFORE_MANIFEST)
        write_manifest(layout.manifest(self._stage.id, number), manifest)
        reach(CrashPoint.STAGE_AFTER_MANIFEST)
        layout.manifest(self._stage.id, number - MANIFESTS_KEPT).unlink(missing_ok=True)

    def _finish_publish(
        self, batch: MicroBatchInput, run: stage_execution.MicroBatchRun, results: StageResults
    ) -> None:
        """Adapt the size, report, and start what runs beside the next micro-batch."""
        published = time.time()
        working = sum(sum(result.phases.values()) for _, result in results)
        records = results[0][1].records
        self._sizer.observe(records, time.monotonic() - run.began, working)
        # What was more than would fit into the target duration is a backlog, too.
        normal = min(self._allowed, self._sizer.size)
        self._context.load.record_published(self._stage.id, records, normal, run.began, working)
        self._input.set_preferred_size(self._sizer.size, light=self._sizer.is_light)
        for (execution, result), monitor in zip(results, self._monitors, strict=True):
            monitor.published(result.acks, result.states)
            self._context.report(execution.report(result, run, published), result.counters)
            execution.warn_of_changed_fields(result)
            # At a barrier the snapshot compacts the state, if the backend wants that.
            if not batch.end_of_input and batch.barrier is None:
                execution.state.start_compaction()

    def _update_splits(self) -> None:
        if self._head.time.generates_watermarks and self._stage.is_source:
            self._head.time.update_splits(
                self._input.parallel_splits(),
                self._input.is_finished,
                self._context.job.monotonic(),
            )

    def _forward_watermarks(self) -> None:
        """Send changed watermark statuses to the consumers in other regions."""
        for channel, status in self._time.take_updates().items():
            self._outputs[channel].append(Entry(EntryKind.WATERMARK, watermark_status=status))
        for execution, monitor in zip(self._executions, self._monitors, strict=True):
            monitor.observe_watermarks(execution.time.watermarks())

    def _consume(self, batch: MicroBatchInput, records: int) -> None:
        # Barriers are consumed here too, before the snapshot. That does not unblock the inputs
        # early: only this thread reads their logs, and it takes the snapshot first.
        for channel, entry in self._input.notify_published(batch, records):
            for segment in entry.segments:
                self._context.registry.delete(self._context.layout.channel(channel) / segment.name)
        self._signals.notify()

    # -- barriers and the end of input ------------------------------------------------------

    def _take_snapshot(
        self, checkpoint: CheckpointId, channel_state: InFlightDataCollector | None
    ) -> None:
        """Freeze all stages at a barrier, forward it, and start the asynchronous phase."""
        coordinator = self._coordinator
        assert coordinator is not None
        live, aligned = coordinator.live_checkpoint(checkpoint), self._alignment.stats(checkpoint)
        savepoint = None
        if live.savepoint_path is not None:
            savepoint = self._context.job.job_dir.from_journal_path(live.savepoint_path)
        snapshots = [
            execution.snapshots.freeze(
                SnapshotRequest(
                    checkpoint,
                    live.triggered,
                    # Inside a region the shuffle delivers everything: only its head aligns.
                    aligned if is_head else AlignmentStats(aligned.ended, aligned.ended),
                    ended=self._has_ended,
                    flush=live.flush,
                    savepoint=savepoint,
                    channel_state=channel_state if is_head else None,
                )
            )
            for execution in self._executions
            for is_head in [execution is self._head]
        ]
        if channel_state is not None:
            coordinator.record(checkpoint, CheckpointEvent.OVERTAKEN, self._stage.name)
        reach(CrashPoint.STAGE_SNAPSHOT_FROZEN)
        for execution in self._executions:
            coordinator.record(checkpoint, CheckpointEvent.SNAPSHOT_SYNC, execution.stage.name)
        for log in self._outputs.values():
            log.append(barrier(checkpoint))
        self._last_checkpoint = checkpoint
        for snapshot in snapshots:
            coordinator.submit_snapshot(snapshot)
        event = (
            CheckpointEvent.BARRIER_INJECTED
            if self._stage.is_source
            else CheckpointEvent.BARRIER_FORWARDED
        )
        coordinator.record(checkpoint, event, self._stage.name)
        reach(CrashPoint.STAGE_BARRIER_FORWARDED)
        self._signals.notify()

    def _end_of_input(self) -> None:
        self._has_ended = True
        for log in self._outputs.values():
            log.append(END_OF_INPUT)
        if self._coordinator is not None:
            for execution in self._executions:
                self._coordinator.stage_ended(execution.stage.id)
        self._signals.notify()

    def _notify_last_checkpoint(self) -> None:
        """Notify functions of the last checkpoint, and close them."""
        if self._head.batch == 0 or not self._has_listeners():
            return
        request = stage_execution.MicroBatchRequest(
            self._no_input(),
            self._take_notifications(),
            self._last_checkpoint,
            keep_open=True,
            close=True,
        )
        try:
            self._runner.run(request)
        except StoppedError:
            raise
        except Exception as error:
            # Everything is committed: another attempt would have nothing to do.
            logger.warning(
                "Stage %r could not notify its functions of the last checkpoint: %s",
                self._stage.name,
                error,
            )
