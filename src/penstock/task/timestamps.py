"""Where records get their event time, and what of it becomes a watermark.

A strategy keeps time per *unit*: a split of a source, which is in order in itself, or a subtask
behind an exchange. What a unit's watermark is at the end of a micro-batch goes to the driver, which
takes the least of all units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.common.event_time import MIN_WATERMARK
from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from penstock.graph.job_graph import Node
from penstock.task.failure import fail
from penstock.task.messages import UnitTime
from penstock.task.moment import Moment

__all__ = ["Generators", "TimestampStep"]

Push = Callable[[Any], None]

Generators = dict[tuple[int, str], WatermarkGenerator]
"""Those of the user's own, by step and unit; kept while the worker keeps its functions."""


class TimestampStep:
    """One step that assigns timestamps, in one task."""

    def __init__(self, node: Node, moment: Moment, generators: Generators, unit: str) -> None:
        self._node = node
        assert node.watermarks is not None
        self._strategy = node.watermarks
        self._moment = moment
        self._generators = generators
        self._unit = unit
        self._highest = MIN_WATERMARK
        self._seen: dict[str, int] = {}
        self._outputs: dict[str, WatermarkOutput] = {}

    def enter(self, unit: str) -> None:
        """Go on with the records of another unit."""
        self._note()
        self._unit, self._highest = unit, self._seen.get(unit, MIN_WATERMARK)

    def push(self, out: Push) -> Push:
        """Return what takes a record, gives it its time, and hands it on."""
        step, moment = self._node.name, self._moment
        assigner = self._strategy.timestamp_assigner
        extract = _as_it_is if assigner is None else assigner.extract_timestamp
        generates = self._strategy.generator is not None

        def push(record: Any) -> None:
            before = moment.timestamp
            try:
                time = extract(record, before)
                if time.__class__ is not int:
                    _refuse(time)
                if time > self._highest:
                    self._highest = time
                if generates:
                    self._tell(record, time)
            except (Exception, SystemExit) as error:
                fail(step, record, error)
            moment.timestamp = time
            out(record)
            # A branch beside this step must not see the time it gave.
            moment.timestamp = before

        return push

    def _tell(self, record: Any, time: int) -> None:
        output = self._outputs.get(self._unit)
        if output is None:
            output = self._outputs[self._unit] = WatermarkOutput()
        self._generator(self._unit).on_event(record, time, output)

    def units(self) -> list[UnitTime]:
        """Return the units that brought records, each with its watermark."""
        self._note()
        if self._strategy.generator is not None:
            return self._generated()
        late = self._strategy.max_out_of_orderness
        if late is None:
            return []
        behind = late.to_millis() + 1
        lowest = MIN_WATERMARK + behind
        return [UnitTime(u, max(time, lowest) - behind) for u, time in self._seen.items()]

    def _generated(self) -> list[UnitTime]:
        for unit in self._outputs:
            self._generator(unit).on_periodic_emit(self._outputs[unit])
        return [UnitTime(u, o.watermark, o.is_idle) for u, o in self._outputs.items()]

    def _generator(self, unit: str) -> WatermarkGenerator:
        key = self._node.id, unit
        found = self._generators.get(key)
        if found is None:
            assert self._strategy.generator is not None
            found = self._generators[key] = self._strategy.generator()
        return found

    def _note(self) -> None:
        if self._highest > MIN_WATERMARK:
            self._seen[self._unit] = self._highest


def _as_it_is(record: Any, timestamp: int) -> int:
    return timestamp


def _refuse(time: object) -> None:
    message = f"extract_timestamp() must return milliseconds as an int; it returned {time!r}"
    raise TypeError(message)
