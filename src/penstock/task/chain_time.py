"""What time it is at each step of a chain."""

from __future__ import annotations

from penstock.common.event_time import MIN_WATERMARK
from penstock.datastream.timerservice import TimerService
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.task.generators import Generators
from penstock.task.messages import TimeOrder, UnitTime
from penstock.task.moment import Moment
from penstock.task.timer_service import ClockService
from penstock.task.timestamps import TimestampStep

__all__ = ["ChainTime"]


class ChainTime:
    """The clocks of one chain in one task."""

    def __init__(
        self, stage: Stage, moment: Moment, order: TimeOrder, generators: Generators, unit: str
    ) -> None:
        """Prepare; `unit` is what the records come from, until `enter` says otherwise."""
        self.moment = moment
        self._stage = stage
        self._order = order
        self._steps = {
            node.id: TimestampStep(
                node, moment, generators, order.generators.get(node.id, {}), unit
            )
            for node in stage.nodes
            if node.watermarks is not None
        }

    def step(self, node: Node) -> TimestampStep:
        """Return the step that gives records their time."""
        return self._steps[node.id]

    def enter(self, unit: str) -> None:
        """Learn that the records of another unit come now."""
        for step in self._steps.values():
            step.enter(unit)

    def service(self, node: Node) -> TimerService:
        """Return what tells a step without keys the time."""
        watermark = self._watermark_at(node)
        return ClockService(self.moment, lambda: watermark)

    def units(self, version: str) -> dict[int, list[UnitTime]]:
        """Return what the steps that make watermarks have seen, in this task attempt."""
        found = {node: step.units(version) for node, step in self._steps.items()}
        return {node: units for node, units in found.items() if units}

    def _watermark_at(self, node: Node) -> int:
        maker = self._stage.time_maker(node, itself=False)
        if maker is None:
            return self._order.before
        return self._order.behind.get(maker.id, MIN_WATERMARK)
