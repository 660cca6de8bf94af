"""Keeps user-defined watermark generators on the driver between micro-batches."""

from __future__ import annotations

from collections.abc import Mapping

import cloudpickle

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from penstock.graph.job_graph import Node
from penstock.task.failure import StepFailed, calling
from penstock.task.messages import GeneratorInput, GeneratorState
from penstock.task.time.watermark_generators import create_generator, snapshot_generator


class SplitGenerators:
    """The generators of one operator by split: as tasks left them, or as the driver called them.

    A restored generator is unpickled only when it is called, and only by an operator whose
    strategy has a user-defined generator.
    """

    def __init__(self, node: Node, restored: Mapping[str, GeneratorState]) -> None:
        self._node = node
        self._inputs = {split: GeneratorInput(state) for split, state in restored.items()}
        self._live: dict[str, WatermarkGenerator] = {}

    def update(self, split: str, state: GeneratorState, version: str) -> None:
        """Record how the task attempt `version` left the generator of a split."""
        self._inputs[split] = GeneratorInput(state, version)
        self._live.pop(split, None)

    def remove(self, split: str) -> None:
        """Drop the generator of a finished split."""
        self._inputs.pop(split, None)
        self._live.pop(split, None)

    def emit(self, split: str, output: WatermarkOutput) -> None:
        """Call `on_periodic_emit` of a split's generator, as a task without records would.

        Raises:
            PenstockError: the generator raised.
        """
        try:
            live = self._live.get(split)
            if live is None:
                left = self._inputs.get(split)
                live = create_generator(self._node, None if left is None else left.state)
                self._live[split] = live
            with calling(self._node.name, "on_periodic_emit()"):
                live.on_periodic_emit(output)
        except StepFailed as failed:
            raise failed.error from failed

    def inputs(self) -> dict[str, GeneratorInput]:
        """Return the generators that the next micro-batch continues with."""
        for split, live in self._live.items():
            try:
                # Classes of the main program are pickled by value: workers cannot import them.
                state = snapshot_generator(self._node, live, cloudpickle.dumps)
            except StepFailed as failed:
                raise failed.error from failed
            if split not in self._inputs or self._inputs[split].state != state:
                self._inputs[split] = GeneratorInput(state)
        return dict(self._inputs)

    def snapshot(self) -> dict[str, GeneratorState]:
        """Return what a checkpoint stores of the generators."""
        return {split: generator.state for split, generator in self.inputs().items()}
