"""Watermark generators of the user's own, as the driver has them between micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

import cloudpickle

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from penstock.graph.job_graph import Node
from penstock.task.failure import StepFailed, calling
from penstock.task.generators import freeze_generator, make_generator
from penstock.task.messages import GeneratorState, GivenGenerator

__all__ = ["UnitGenerators"]


class UnitGenerators:
    """Those of one step, by unit: as tasks left them, and those it has asked itself since.

    What comes out of a snapshot is unpickled when it is asked, and not before; never by a step
    without generators, which has none of these.
    """

    def __init__(self, node: Node, saved: Mapping[str, GeneratorState]) -> None:
        self._node = node
        self._left = {unit: GivenGenerator(state) for unit, state in saved.items()}
        self._live: dict[str, WatermarkGenerator] = {}

    def left(self, unit: str, state: GeneratorState, version: str) -> None:
        """Learn how the task attempt `version` left the generator of a unit."""
        self._left[unit] = GivenGenerator(state, version)
        self._live.pop(unit, None)

    def forget(self, unit: str) -> None:
        """Learn that a unit has come to its end."""
        self._left.pop(unit, None)
        self._live.pop(unit, None)

    def ask(self, unit: str, output: WatermarkOutput) -> None:
        """Call the generator of a unit as if it were in a task, without records.

        Raises:
            PenstockError: the generator raised.
        """
        try:
            live = self._live.get(unit)
            if live is None:
                left = self._left.get(unit)
                live = make_generator(self._node, None if left is None else left.state)
                self._live[unit] = live
            with calling(self._node.name, "on_periodic_emit()"):
                live.on_periodic_emit(output)
        except StepFailed as failed:
            raise failed.error from failed

    def given(self) -> dict[str, GivenGenerator]:
        """Return what the next micro-batch goes on with."""
        for unit, live in self._live.items():
            try:
                # By value what is in the main program, which workers cannot import.
                state = freeze_generator(self._node, live, cloudpickle.dumps)
            except StepFailed as failed:
                raise failed.error from failed
            if unit not in self._left or self._left[unit].state != state:
                self._left[unit] = GivenGenerator(state)
        return dict(self._left)

    def saved(self) -> dict[str, GeneratorState]:
        """Return what a checkpoint keeps."""
        return {unit: given.state for unit, given in self.given().items()}
