"""Collects the metrics of one stage over all attempts of a job, under Flink's names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.checkpoint.storage.metadata import SubtaskStats
from penstock.common.event_time import MIN_WATERMARK
from penstock.common.live_figures import OperatorFigures, StageFigures, SubtaskFigures
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.graph.transformation import OperatorKind
from penstock.job.figures.totals import RateTotals
from penstock.state.backends.refs import StateRef
from penstock.task.messages import Acknowledgement, SubtaskLocation

_MS = 1000.0
_NS = 1e9
_TASK = ""
"""In the place of an operator's uid: the subtask as a whole."""

Key = tuple[str, int, str]
"""The operator's uid or `_TASK`, the subtask, and the name of the metric."""

_RECORDS_IN, _RECORDS_OUT = "numRecordsIn", "numRecordsOut"
_BYTES_IN, _BYTES_OUT = "numBytesIn", "numBytesOut"
_RECORDS_SENT, _LATE = "numRecordsSend", "numLateRecordsDropped"
_BUSY, _BLOCKED, _IDLE = "BusyTimeMs", "BackPressuredTimeMs", "IdleTimeMs"
_COUNTS = (_RECORDS_IN, _RECORDS_OUT, _BYTES_IN, _BYTES_OUT, _RECORDS_SENT)
"""Metrics that have a rate, named after them."""


@dataclass(slots=True)
class _Subtask:
    """What is known of a subtask since its last micro-batch."""

    location: SubtaskLocation | None = None
    state: StateRef | None = None
    operator_state: dict[str, int] = field(default_factory=dict)
    """By operator uid, its size in bytes."""
    rocksdb: dict[str, int] = field(default_factory=dict)
    event_time_lag: int | None = None
    checkpoint: SubtaskStats | None = None


class StageMonitor:
    """The metrics of one stage: its region's loop adds to them, any thread reads them.

    Counts are those of published micro-batches, so tasks that were retried count once.
    """

    def __init__(
        self, stage: Stage, monotonic: Callable[[], float], clock: Callable[[], float]
    ) -> None:
        self._stage = stage
        self._monotonic = monotonic
        self._clock = clock
        self._lock = threading.Lock()
        self._began = monotonic()
        self._totals = RateTotals[Key](self._began)
        self._counters: dict[tuple[str, str], dict[int, float]] = {}
        """The counters of functions by operator uid and name, per subtask."""
        self._subtasks = [_Subtask() for _ in range(stage.parallelism)]
        self._blocked_since: float | None = None
        """Since when a channel downstream is full, None if the stage does not wait for one."""
        self._watermarks: Mapping[str, tuple[int, int]] = {}
        """By operator uid, before and after it."""
        self._pending: int | None = None
        self.region = 0
        """The pipelined region that runs the stage in the present attempt."""

    # -- called by the region loop ----------------------------------------------------------

    def published(self, acks: Sequence[Acknowledgement], states: Sequence[StateRef]) -> None:
        """Add a published micro-batch, with the state of each subtask after it."""
        with self._lock:
            self._totals.prepare(self._monotonic())
            for ack in acks:
                self._add(ack)
            for subtask, state in zip(self._subtasks, states, strict=False):
                subtask.state = state

    def _add(self, ack: Acknowledgement) -> None:
        add, i = self._totals.add, ack.subtask
        add((_TASK, i, _RECORDS_IN), ack.records_in)
        add((_TASK, i, _RECORDS_OUT), ack.records_out)
        add((_TASK, i, _BYTES_IN), ack.bytes_in)
        add((_TASK, i, _BYTES_OUT), ack.bytes_out)
        add((_TASK, i, _BUSY), sum(ack.phases.values()) * _MS)
        for uid, counts in ack.operators.items():
            add((uid, i, _RECORDS_IN), counts.records_in)
            add((uid, i, _RECORDS_OUT), counts.records_out)
        for uid, counters in ack.counters.items():
            for name, count in counters.items():
                of_subtasks = self._counters.setdefault((uid, name), {})
                of_subtasks[i] = of_subtasks.get(i, 0) + count
        subtask = self._subtasks[i]
        subtask.operator_state.update({u: len(data) for u, data in ack.operator_state.items()})
        subtask.location = ack.location or subtask.location
        subtask.rocksdb = ack.rocksdb or subtask.rocksdb
        if ack.event_time_lag is not None:
            subtask.event_time_lag = ack.event_time_lag

    def observe_backpressure(self, *, is_blocked: bool) -> None:
        """Record whether the stage waits, from now on, because a channel downstream is full."""
        if is_blocked is (self._blocked_since is not None):
            return
        now = self._monotonic()
        with self._lock:
            since, self._blocked_since = self._blocked_since, now if is_blocked else None
            if since is not None:
                self._add_blocked(since, now)

    def _add_blocked(self, since: float, now: float) -> None:
        self._totals.prepare(now)
        self._totals.add((_TASK, 0, _BLOCKED), (now - since) * _MS)

    def observe_watermarks(self, watermarks: Mapping[str, tuple[int, int]]) -> None:
        """Record the watermarks before and after each operator, by uid."""
        self._watermarks = watermarks

    def observe_pending(self, records: int | None) -> None:
        """Record how many records of the source have not been read, None if it does not know."""
        self._pending = records

    # -- called by any thread ---------------------------------------------------------------

    def checkpointed(self, stats: Sequence[SubtaskStats]) -> None:
        """Record the statistics of a completed checkpoint, by subtask."""
        with self._lock:
            for subtask, of_checkpoint in zip(self._subtasks, stats, strict=False):
                subtask.checkpoint = of_checkpoint

    def started(self) -> None:
        """Record that the first attempt runs: times and rates count from now on."""
        with self._lock:
            self._began = self._monotonic()
            self._totals = RateTotals[Key](self._began)

    def stopped(self) -> None:
        """Record that no attempt runs."""
        self.observe_backpressure(is_blocked=False)
        self._pending = None

    def counters(self) -> dict[tuple[str, str], dict[int, float]]:
        """Return the counters of functions by operator uid and name, per subtask."""
        with self._lock:
            return {key: dict(sorted(of.items())) for key, of in self._counters.items()}

    def figures(self) -> StageFigures:
        """Return the metrics now."""
        stage = self._stage
        with self._lock:
            now = self._monotonic()
            if self._blocked_since is not None:
                # The wait that goes on is not in the totals yet.
                self._add_blocked(self._blocked_since, now)
                self._blocked_since = now
            reading = _Reading(
                self._totals.values,
                self._totals.rates(now),
                now - self._began,
                self._blocked_since is not None,
            )
            subtasks = [self._subtask(i, reading) for i in range(stage.parallelism)]
            operators = [self._operator(node, reading) for node in stage.nodes]
        return StageFigures(
            stage=stage.id,
            name=stage.name,
            uids=[str(node.uid) for node in stage.nodes],
            parallelism=stage.parallelism,
            max_parallelism=stage.head.max_parallelism,
            is_source=stage.is_source,
            region=self.region,
            subtasks=subtasks,
            operators=operators,
        )

    def _subtask(self, subtask: int, reading: _Reading) -> SubtaskFigures:
        known = self._subtasks[subtask]
        metrics = reading.counts(_TASK, subtask)
        metrics |= reading.times(subtask)
        metrics |= self._watermarks_of(self._stage.nodes[0], self._stage.nodes[-1])
        if known.checkpoint is not None:
            metrics["checkpointAlignmentTime"] = known.checkpoint.alignment_s * _NS
            metrics["checkpointStartDelayNanos"] = known.checkpoint.start_delay_s * _NS
        sizes = [*known.operator_state.values(), _size(known.state)]
        if known.state is not None or known.operator_state:
            metrics["stateSize"] = sum(sizes)
        location = known.location
        return SubtaskFigures(
            subtask,
            "" if location is None else location.executor,
            "" if location is None else location.host,
            metrics,
        )

    def _operator(self, node: Node, reading: _Reading) -> OperatorFigures:
        subtasks = {i: self._of_operator(node, i, reading) for i in range(self._stage.parallelism)}
        return OperatorFigures(str(node.uid), node.name, subtasks)

    def _of_operator(self, node: Node, subtask: int, reading: _Reading) -> dict[str, float]:
        uid, known, is_head = str(node.uid), self._subtasks[subtask], node is self._stage.head
        metrics = reading.counts(uid, subtask)
        if node.kind is OperatorKind.SINK:
            metrics[_RECORDS_SENT] = metrics[_RECORDS_IN]
            metrics[f"{_RECORDS_SENT}PerSecond"] = metrics[f"{_RECORDS_IN}PerSecond"]
        late = self._counters.get((uid, _LATE), {})
        if subtask in late:
            metrics[_LATE] = late[subtask]
        metrics |= self._watermarks_of(node, node)
        state = known.operator_state.get(uid)
        if state is not None or (is_head and known.state is not None):
            metrics["stateSize"] = (state or 0) + (_size(known.state) if is_head else 0)
        if is_head:
            metrics |= known.rocksdb
            metrics |= self._of_source(subtask)
        return metrics

    def _of_source(self, subtask: int) -> dict[str, float]:
        if not self._stage.is_source:
            return {}
        metrics: dict[str, float] = {}
        lag = self._subtasks[subtask].event_time_lag
        if lag is not None:
            metrics["currentEmitEventTimeLag"] = lag
        # The watermark of a source is that after the step of its chain that generates it.
        emitted = [after for _, after in self._watermarks.values() if after > MIN_WATERMARK]
        if emitted and max(emitted) < -MIN_WATERMARK - 1:
            metrics["watermarkLag"] = self._clock() * _MS - max(emitted)
        if self._pending is not None and subtask == 0:
            metrics["pendingRecords"] = self._pending
        return metrics

    def _watermarks_of(self, first: Node, last: Node) -> dict[str, float]:
        watermarks: dict[str, float] = {}
        if (before := self._watermarks.get(str(first.uid))) is not None:
            watermarks["currentInputWatermark"] = before[0]
        if (after := self._watermarks.get(str(last.uid))) is not None:
            watermarks["currentOutputWatermark"] = after[1]
        return {name: value for name, value in watermarks.items() if value > MIN_WATERMARK}


@dataclass(frozen=True, slots=True)
class _Reading:
    """The totals and rates of a stage at one time."""

    totals: Mapping[Key, float]
    rates: Mapping[Key, float]
    elapsed_s: float
    is_blocked: bool

    def counts(self, uid: str, subtask: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in _COUNTS:
            key = uid, subtask, name
            is_known = uid == _TASK or name in (_RECORDS_IN, _RECORDS_OUT)
            if key in self.totals or (is_known and name != _RECORDS_SENT):
                found[name] = self.totals.get(key, 0)
                found[f"{name}PerSecond"] = self.rates.get(key, 0.0)
        return found

    def times(self, subtask: int) -> dict[str, float]:
        """Return the busy, backpressured and idle time, per second and in all."""
        busy, blocked = (_TASK, subtask, _BUSY), (_TASK, 0, _BLOCKED)
        return (
            _shares(self.rates.get(busy, 0.0), self.rates.get(blocked, 0.0), _MS, "", "PerSecond")
            | _shares(
                self.totals.get(busy, 0.0),
                self.totals.get(blocked, 0.0),
                self.elapsed_s * _MS,
                "accumulate",
                "",
            )
            | {"isBackPressured": float(self.is_blocked)}
        )


def _shares(
    busy: float, blocked: float, whole: float, prefix: str, suffix: str
) -> dict[str, float]:
    # A micro-batch counts when it is published: it may have begun before the span of the rate.
    busy = min(busy, whole)
    blocked = min(blocked, whole - busy)
    parts = {_BUSY: busy, _BLOCKED: blocked, _IDLE: whole - busy - blocked}
    return {_name(part, prefix) + suffix: value for part, value in parts.items()}


def _name(part: str, prefix: str) -> str:
    return f"{prefix}{part}" if prefix else part[0].lower() + part[1:]


def _size(state: StateRef | None) -> int:
    if state is None:
        return 0
    return sum(file.size for file in state.files) + len(state.inline or b"")
