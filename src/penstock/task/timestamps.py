"""Where records get their event time, and what of it becomes a watermark.

A strategy keeps time per *unit*: a split of a source, which is in order in itself, or a subtask
behind an exchange. What a unit's watermark is at the end of a micro-batch goes to the driver, which
takes the least of all units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.event_time import MIN_WATERMARK
from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from penstock.graph.job_graph import Node
from penstock.task.failure import calling, fail
from penstock.task.generators import Generators, freeze_generator
from penstock.task.messages import GivenGenerator, UnitTime
from penstock.task.moment import Moment

__all__ = ["TimestampStep"]

Push = Callable[[Any], None]

Running = tuple[WatermarkGenerator, WatermarkOutput]


class TimestampStep:
    """One step that assigns timestamps, in one task."""

    def __init__(
        self,
        node: Node,
        moment: Moment,
        generators: Generators,
        given: Mapping[str, GivenGenerator],
        unit: str,
    ) -> None:
        """Prepare; `given` is what the units' generators of the user's own go on with."""
        self._node = node
        assert node.watermarks is not None
        self._strategy = node.watermarks
        self._moment = moment
        self._generators = generators
        self._given = given
        self._unit = unit
        self._highest = MIN_WATERMARK
        self._seen: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._current: Running | None = None

    def enter(self, unit: str) -> None:
        """Go on with the records of another unit."""
        self._note()
        self._unit, self._highest = unit, self._seen.get(unit, MIN_WATERMARK)
        self._current = self._running.get(unit)

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
                    generator, output = self._current or self._begin()
                    generator.on_event(record, time, output)
            except (Exception, SystemExit) as error:
                fail(step, record, error)
            moment.timestamp = time
            out(record)
            # A branch beside this step must not see the time it gave.
            moment.timestamp = before

        return push

    def _begin(self) -> Running:
        given, output = self._given.get(self._unit), WatermarkOutput()
        output.is_idle = given is not None and given.is_idle
        running = self._generators.take(self._node, self._unit, given), output
        self._current = self._running[self._unit] = running
        return running

    def units(self, version: str) -> list[UnitTime]:
        """Return the units that brought records, each with its watermark.

        Called behind the last record, by the task attempt that `version` names.
        """
        self._note()
        if self._strategy.generator is not None:
            return [self._generated(unit, version) for unit in self._running]
        late = self._strategy.max_out_of_orderness
        if late is None:
            return []
        behind = late.to_millis() + 1
        lowest = MIN_WATERMARK + behind
        return [UnitTime(u, max(time, lowest) - behind) for u, time in self._seen.items()]

    def _generated(self, unit: str, version: str) -> UnitTime:
        generator, output = self._running[unit]
        with calling(self._node.name, "on_periodic_emit()"):
            generator.on_periodic_emit(output)
        state = freeze_generator(self._node, generator)
        self._generators.keep(self._node, unit, generator, version)
        return UnitTime(unit, output.watermark, output.is_idle, state)

    def _note(self) -> None:
        if self._highest > MIN_WATERMARK:
            self._seen[self._unit] = self._highest


def _as_it_is(record: Any, timestamp: int) -> int:
    return timestamp


def _refuse(time: object) -> None:
    message = f"extract_timestamp() must return milliseconds as an int; it returned {time!r}"
    raise TypeError(message)
