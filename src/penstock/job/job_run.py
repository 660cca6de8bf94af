"""One run of a job: its loops, its end, and what it leaves behind."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from penstock.channel.log import UNBOUNDED, Bounds, ChannelLog
from penstock.connectors.sink import PublisherContext, SinkPublisher
from penstock.connectors.source import EnumeratorContext
from penstock.graph.plan import Channel, Plan, Stage
from penstock.graph.transformation import Exchange, OperatorKind
from penstock.ids import ChannelId
from penstock.job.board import Board
from penstock.job.inputs import ChannelInput, GroupedInput, SourceInput, StageInput
from penstock.job.manifest import add_counts
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings
from penstock.job.stage_loop import StageLoop, StageParts
from penstock.job.submitter import Submitter
from penstock.task.layout import Layout, file_name

logger = logging.getLogger("penstock.job")

_REPORTS_KEPT = 10_000


class JobState(Enum):
    """Where a run stands."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class JobRun:
    """Runs a plan: one thread per stage, until all have ended."""

    def __init__(
        self, plan: Plan, layout: Layout, settings: JobSettings, submitter: Submitter
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._settings = settings
        self._submitter = submitter
        self._board = Board()
        self._lock = threading.Lock()
        self._reports: deque[MicroBatchReport] = deque(maxlen=_REPORTS_KEPT)
        self._counters: dict[str, dict[str, int]] = {}
        self._publishers: list[SinkPublisher] = []
        self._threads: list[threading.Thread] = []
        self.cancelled = False
        self._ended = threading.Event()
        self.started = time.time()
        self.state = JobState.RUNNING

    def start(self) -> None:
        """Open sources and sinks, then start the loops; returns at once."""
        logs = {c.id: ChannelLog(self._bounds(c)) for c in self._plan.channels}
        inputs: list[StageInput] = []
        loops = []
        try:
            for stage in self._plan.stages:
                inputs.append(self._input(stage, logs))
                loops.append(self._loop(stage, inputs[-1], logs))
        except BaseException:
            for close in [i.close for i in inputs] + [p.close for p in self._publishers]:
                _quietly(close)
            raise
        self._threads = [
            threading.Thread(target=loop.run, name=f"stage-{i}", daemon=True)
            for i, loop in enumerate(loops)
        ]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._await_end, name="job-end", daemon=True).start()

    def _loop(
        self, stage: Stage, given: StageInput, logs: Mapping[ChannelId, ChannelLog]
    ) -> StageLoop:
        parts = StageParts(
            stage=stage,
            layout=self._layout,
            settings=self._settings,
            submitter=self._submitter,
            board=self._board,
            input=given,
            outputs={c.id: logs[c.id] for c in stage.outputs},
            publishers=self._open_publishers(stage),
            report=self._take_report,
        )
        return StageLoop(parts)

    def cancel(self) -> None:
        """End between micro-batches: what is running is still published."""
        self.cancelled = True
        self._board.stop()

    def kill(self) -> None:
        """End now: what is running is thrown away."""
        self.cancel()
        self._submitter.cancel()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; false if it has not come in time."""
        return self._ended.wait(seconds)

    @property
    def failure(self) -> BaseException | None:
        """What the job failed of, if it did."""
        return self._board.failure if self.state is JobState.FAILED else None

    def reports(self) -> list[MicroBatchReport]:
        """Return the newest published micro-batches, oldest first."""
        with self._lock:
            return list(self._reports)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return what functions counted in published micro-batches, by operator uid."""
        with self._lock:
            return {uid: dict(counts) for uid, counts in self._counters.items()}

    def _input(self, stage: Stage, logs: Mapping[ChannelId, ChannelLog]) -> StageInput:
        if stage.is_source:
            durable = self._settings.ingestion_dir or self._layout.durable_root
            enumerator = stage.head.function.enumerator(
                EnumeratorContext(
                    parallelism=stage.parallelism,
                    work_dir=durable / file_name(stage.head.uid),
                    clock=time.time,
                    wake=self._board.change,
                )
            )
            given = SourceInput(enumerator, stage.parallelism, self._settings.poll_seconds)
            try:
                enumerator.start({})
            except BaseException:
                _quietly(given.close)
                raise
            return given
        mine = {c.id: logs[c.id] for c in stage.inputs}
        if self._is_grouped(stage):
            return GroupedInput(mine, stage.parallelism, self._settings.sizes.maximum)
        forward = [c.id for c in stage.inputs if c.exchange is Exchange.FORWARD]
        return ChannelInput(mine, stage.parallelism, forward)

    def _is_grouped(self, stage: Stage) -> bool:
        return self._settings.batch_mode and stage.head.kind.is_keyed

    def _bounds(self, channel: Channel) -> Bounds:
        # Grouping by key begins at the end of the input: a bound would wait for it forever.
        grouped = self._is_grouped(self._plan.stages[channel.consumer])
        return UNBOUNDED if grouped else self._settings.bounds

    def _open_publishers(self, stage: Stage) -> dict[int, SinkPublisher]:
        publishers: dict[int, SinkPublisher] = {}
        for node in stage.nodes:
            if node.kind is OperatorKind.SINK:
                work_dir = self._layout.durable_root / file_name(node.uid)
                context = PublisherContext(node.parallelism, node.name, work_dir)
                publishers[node.id] = node.function.publisher(context)
        self._publishers.extend(publishers.values())
        return publishers

    def _take_report(
        self, report: MicroBatchReport, counters: Mapping[str, Mapping[str, int]]
    ) -> None:
        with self._lock:
            self._reports.append(report)
            add_counts(self._counters, counters)

    def _await_end(self) -> None:
        for thread in self._threads:
            thread.join()
        for publisher in self._publishers:
            _quietly(publisher.close)
        if self._board.failure is not None:
            self.state = JobState.FAILED
        else:
            self.state = JobState.CANCELED if self.cancelled else JobState.FINISHED
        shutil.rmtree(self._layout.root, ignore_errors=True)
        shutil.rmtree(self._layout.local, ignore_errors=True)
        self._ended.set()


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception:
        logger.warning("closing a source or sink failed", exc_info=True)
