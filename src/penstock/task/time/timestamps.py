"""Event time in a chain: assigns timestamps to records and generates watermarks.

Watermarks are generated per split: a split of a source, which is in order in itself, or a subtask
after an exchange. The watermark of each split at the end of a micro-batch goes to the driver, which
takes the least of all splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.event_time import MIN_WATERMARK
from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from penstock.datastream.timerservice import TimerService
from penstock.graph.job_graph import Node
from penstock.graph.plan import Stage
from penstock.task.failure import calling, fail
from penstock.task.messages import GeneratorInput, MicroBatchTime, SplitWatermark
from penstock.task.time.timer_service import RecordTime, UnkeyedTimerService
from penstock.task.time.watermark_generators import WatermarkGenerators, snapshot_generator

Push = Callable[[Any], None]

Running = tuple[WatermarkGenerator, WatermarkOutput]


class ChainTimeService:
    """The watermarks of one chain in one task."""

    def __init__(
        self,
        stage: Stage,
        record_time: RecordTime,
        batch_time: MicroBatchTime,
        generators: WatermarkGenerators,
        split: str,
    ) -> None:
        """Prepare; the records belong to `split` until `switch_split` is called."""
        self.record_time = record_time
        self._stage = stage
        self._batch_time = batch_time
        self.steps = {
            node.id: TimestampStep(
                node, record_time, generators, batch_time.generators.get(node.id, {}), split
            )
            for node in stage.nodes
            if node.watermarks is not None
        }
        """The steps that assign timestamps, by the id of their node."""

    def switch_split(self, split: str) -> None:
        """Continue with the records of another split."""
        for step in self.steps.values():
            step.switch_split(split)

    @property
    def newest_timestamp(self) -> int:
        """The highest timestamp that was assigned, `MIN_WATERMARK` if none was."""
        return max((step.newest for step in self.steps.values()), default=MIN_WATERMARK)

    def service(self, node: Node) -> TimerService:
        """Return the timer service of a step without keys."""
        assigner = self._stage.watermark_step(node, itself=False)
        if assigner is None:
            watermark = self._batch_time.watermark_before
        else:
            watermark = self._batch_time.downstream.get(assigner.id, MIN_WATERMARK)
        return UnkeyedTimerService(self.record_time, watermark)

    def split_watermarks(self, version: str) -> dict[int, list[SplitWatermark]]:
        """Return, per step that generates watermarks, those of the splits it has seen."""
        found = {node: step.split_watermarks(version) for node, step in self.steps.items()}
        return {node: splits for node, splits in found.items() if splits}


class TimestampStep:
    """A step that assigns timestamps and generates watermarks, in one task."""

    def __init__(
        self,
        node: Node,
        record_time: RecordTime,
        generators: WatermarkGenerators,
        inputs: Mapping[str, GeneratorInput],
        split: str,
    ) -> None:
        """Prepare; `inputs` holds the user-defined generators of splits to continue with."""
        self._node = node
        assert node.watermarks is not None
        self._strategy = node.watermarks
        self._record_time = record_time
        self._generators = generators
        self._inputs = inputs
        self._split = split
        self._highest = MIN_WATERMARK
        self._seen: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._current: Running | None = None

    def switch_split(self, split: str) -> None:
        """Continue with the records of another split."""
        self._note()
        self._split, self._highest = split, self._seen.get(split, MIN_WATERMARK)
        self._current = self._running.get(split)

    @property
    def newest(self) -> int:
        """The highest timestamp of all splits."""
        return max(self._highest, *self._seen.values(), MIN_WATERMARK)

    def push(self, out: Push) -> Push:
        """Return a step that assigns a record its timestamp and passes it on."""
        step, record_time = self._node.name, self._record_time
        assigner = self._strategy.timestamp_assigner
        extract = (lambda _, kept: kept) if assigner is None else assigner.extract_timestamp
        generates = self._strategy.generator is not None

        def push(record: Any) -> None:
            before = record_time.timestamp
            try:
                time = extract(record, before)
                if time.__class__ is not int:
                    needed = "extract_timestamp() must return milliseconds as an int"
                    message = f"{needed}; it returned {time!r}"
                    raise TypeError(message)
                if time > self._highest:
                    self._highest = time
                if generates:
                    generator, output = self._current or self._begin()
                    generator.on_event(record, time, output)
            except (Exception, SystemExit) as error:
                fail(step, record, error)
            record_time.timestamp = time
            out(record)
            # A branch beside this step must not see the timestamp it assigned.
            record_time.timestamp = before

        return push

    def _begin(self) -> Running:
        restored, output = self._inputs.get(self._split), WatermarkOutput()
        output.is_idle = restored is not None and restored.is_idle
        running = self._generators.take(self._node, self._split, restored), output
        self._current = self._running[self._split] = running
        return running

    def split_watermarks(self, version: str) -> list[SplitWatermark]:
        """Return the watermark of each split that had records.

        Called after the last record, in the task attempt that `version` names.
        """
        self._note()
        if self._strategy.generator is not None:
            return [self._generated(split, version) for split in self._running]
        max_delay = self._strategy.max_out_of_orderness
        if max_delay is None:
            return []
        delay = max_delay.to_millis() + 1
        lowest = MIN_WATERMARK + delay
        return [SplitWatermark(s, max(time, lowest) - delay) for s, time in self._seen.items()]

    def _generated(self, split: str, version: str) -> SplitWatermark:
        generator, output = self._running[split]
        with calling(self._node.name, "on_periodic_emit()"):
            generator.on_periodic_emit(output)
        state = snapshot_generator(self._node, generator)
        self._generators.keep(self._node, split, generator, version)
        return SplitWatermark(split, output.watermark, output.is_idle, state)

    def _note(self) -> None:
        if self._highest > MIN_WATERMARK:
            self._seen[self._split] = self._highest
