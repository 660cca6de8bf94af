"""The head of a windowed stage."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from penstock.common.event_time import MAX_WATERMARK, NO_TIMESTAMP
from penstock.datastream.time_domain import TimeDomain
from penstock.state.keyed.states import KeyedStates
from penstock.task.heads.context import STRIDE, HeadContext
from penstock.task.heads.inputs import KeyedInput
from penstock.task.heads.keyed import run_records
from penstock.task.operators.steps import Push
from penstock.task.time.timer_service import InternalTimerService
from penstock.task.window.grouped import grouped
from penstock.task.window.operator import WindowOperator, WindowOperatorContext


def run_windows(context: HeadContext) -> None:
    """Assign the input to windows and fire those whose time has come."""
    run_records(context, WindowHead)


class WindowHead:
    """Runs the window operator of a stage over its input."""

    def __init__(
        self, context: HeadContext, states: KeyedStates, out: Push, timers: InternalTimerService
    ) -> None:
        node = context.node
        late = node.function.late_tag
        self._window_context = WindowOperatorContext(
            name=node.name,
            operation=node.function,
            states=states,
            timers=timers,
            runtime_context=context.functions.contexts[node.uid],
            out=out,
            has_late_output=late is not None and late.tag_id in context.stage.side_outputs(node),
        )
        self._operator = WindowOperator(self._window_context)
        self._states = states
        self._timers = timers
        self._watermark_after = context.instruction.time.watermark_after
        self._batch_mode = context.task.batch_mode

    def run(self, batch: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Process all records and fire timers; `after_stride` is called every few thousand.

        In BATCH mode all timers fire after the records.
        """
        record_time = self._timers.record_time
        if not self._batch_mode:
            self._fire(TimeDomain.PROCESSING_TIME, record_time.started, after_stride)
        if batch.numbers:
            self._process(batch, after_stride)
        record_time.timestamp = NO_TIMESTAMP
        watermark = MAX_WATERMARK if self._batch_mode else self._watermark_after
        # As in Flink, a timer that is set for the past waits for the next watermark.
        if watermark > record_time.watermark:
            record_time.watermark = watermark
            self._fire(TimeDomain.EVENT_TIME, watermark, after_stride)
        if self._batch_mode:
            self._fire(TimeDomain.PROCESSING_TIME, MAX_WATERMARK, after_stride)

    def _process(self, batch: KeyedInput, after_stride: Callable[[], None]) -> None:
        groups, times = grouped(self._window_context, self._operator), batch.times
        if groups and times is not None and groups.run(batch.numbers, times, batch.values):
            after_stride()
            return
        states, record_time = self._states, self._timers.record_time
        process = self._operator.process
        records = zip(batch.numbers, batch.timestamps(), batch.values, strict=True)
        for _ in range(0, len(batch.numbers), STRIDE):
            for states.current, record_time.timestamp, value in islice(records, STRIDE):
                process(value)
            after_stride()

    def _fire(self, domain: TimeDomain, until: int, after_stride: Callable[[], None]) -> None:
        is_event = domain is TimeDomain.EVENT_TIME
        fire = self._operator.on_event_time if is_event else self._operator.on_processing_time
        for count, (time, namespace) in enumerate(self._timers.due(domain, until), 1):
            fire(time, namespace)
            if count % STRIDE == 0:
                after_stride()
