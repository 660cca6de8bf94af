"""The head of a windowed stage: a micro-batch of records, then the time that has passed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from penstock.common.event_time import MAX_WATERMARK, NO_TIMESTAMP
from penstock.datastream.time_domain import TimeDomain
from penstock.task.keyed import STRIDE, HeadTime, KeyedInput
from penstock.task.window.grouped import grouped
from penstock.task.window.operator import WindowOperator, WindowParts

__all__ = ["WindowHead"]


class WindowHead:
    """Runs the windowed operator of a stage over its input."""

    def __init__(self, parts: WindowParts, time: HeadTime, batch_mode: bool) -> None:
        self._parts = parts
        self._operator = WindowOperator(parts)
        self._time = time
        self._batch_mode = batch_mode

    def run(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        """Process all records and fire timers; `after_stride` is called now and then in between.

        In BATCH mode all time passes behind the records.
        """
        moment = self._time.moment
        if not self._batch_mode:
            self._fire(TimeDomain.PROCESSING_TIME, moment.started, after_stride)
        if given.numbers:
            self._process(given, after_stride)
        moment.timestamp = NO_TIMESTAMP
        watermark = MAX_WATERMARK if self._batch_mode else self._time.order.watermark
        # As in Flink, a timer that is set for the past waits for the next watermark.
        if watermark > moment.watermark:
            moment.watermark = watermark
            self._fire(TimeDomain.EVENT_TIME, watermark, after_stride)
        if self._batch_mode:
            self._fire(TimeDomain.PROCESSING_TIME, MAX_WATERMARK, after_stride)

    def _process(self, given: KeyedInput, after_stride: Callable[[], None]) -> None:
        group = grouped(self._parts, self._operator)
        times = given.times
        if (
            group is not None
            and times is not None
            and group.run(given.numbers, times, given.values)
        ):
            after_stride()
            return
        states, moment, process = self._parts.states, self._time.moment, self._operator.process
        records = zip(given.numbers, given.timestamps(), given.values, strict=True)
        for _ in range(0, len(given.numbers), STRIDE):
            for states.current, moment.timestamp, value in islice(records, STRIDE):
                process(value)
            after_stride()

    def _fire(self, domain: TimeDomain, until: int, after_stride: Callable[[], None]) -> None:
        is_event = domain is TimeDomain.EVENT_TIME
        fire = self._operator.on_event_time if is_event else self._operator.on_processing_time
        for count, (time, namespace) in enumerate(self._time.timers.due(domain, until), 1):
            fire(time, namespace)
            if count % STRIDE == 0:
                after_stride()
