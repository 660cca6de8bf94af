"""The loop of one stage: decide, submit, publish, again.

The order inside `_publish` is the protocol: the manifest first, everything that can be seen
after it. A loop never holds a lock while a micro-batch runs.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.channel.log import END_OF_INPUT, ChannelLog, Entry, EntryKind
from penstock.connectors.sink import SinkPublisher
from penstock.datastream.functions import Function
from penstock.errors import MicroBatchFailedError
from penstock.graph.plan import Stage
from penstock.ids import ChannelId
from penstock.job.board import Board
from penstock.job.inputs import StageInput, Taken
from penstock.job.manifest import Manifest, add_counts, write_manifest
from penstock.job.report import MicroBatchReport
from penstock.job.settings import JobSettings
from penstock.job.sizing import next_size, size_for_consumers
from penstock.job.stage_state import StageState
from penstock.job.submitter import MicroBatchLostError, Submitter
from penstock.task.failure import unpack
from penstock.task.layout import Layout
from penstock.task.messages import Acknowledgement, Instruction, SubtaskWork, encode

logger = logging.getLogger("penstock.job")

MANIFESTS_KEPT = 100
"""Per stage; an older one has nothing to tell that the newest does not."""


@dataclass(slots=True)
class StageParts:
    """What a loop works with; made once by the job."""

    stage: Stage
    layout: Layout
    settings: JobSettings
    submitter: Submitter
    board: Board
    input: StageInput
    outputs: Mapping[ChannelId, ChannelLog]
    publishers: Mapping[int, SinkPublisher]
    report: Callable[[MicroBatchReport, Mapping[str, Mapping[str, int]]], None]


class _Stopped(Exception):
    """A micro-batch was cut off because the job ends."""


class StageLoop:
    """Runs one stage of a job from its first micro-batch to its last."""

    def __init__(self, parts: StageParts) -> None:
        self._parts = parts
        self._stage = parts.stage
        self._size = parts.settings.sizes.initial
        self._made: dict[ChannelId, float] = {}
        """Per output, how many records were lately made out of one."""
        self._batch = 0
        self._winners: list[str | None] = [None] * parts.stage.parallelism
        self._state = StageState(parts.stage, parts.layout, parts.settings, parts.submitter)
        self._warned: set[str] = set()

    def run(self) -> None:
        """Work until the end of input, a failure, or a stop; runs in the stage's thread."""
        try:
            while (taken := self._next()) is not None:
                self._run_micro_batch(taken)
                if taken.end_of_input:
                    self._finish()
                    return
        except _Stopped:
            pass
        except BaseException as error:
            if self._parts.board.fail(error):
                logger.debug("stage %s failed", self._stage.name, exc_info=True)
            self._parts.submitter.cancel()
        finally:
            self._state.close()
            self._parts.input.close()

    def _next(self) -> Taken | None:
        board, given = self._parts.board, self._parts.input
        while True:
            seen = board.version
            if board.stopping:
                return None
            # Backpressure: blocking inside a micro-batch would hold the consumer's cores.
            if any(log.is_full() for log in self._parts.outputs.values()):
                board.wait(seen, None)
                continue
            taken = given.take(self._next_size())
            if taken is not None:
                return taken
            board.wait(seen, given.wait_seconds())

    def _next_size(self) -> int:
        wanted = [
            (log.wanted, self._made.get(channel, 1.0))
            for channel, log in self._parts.outputs.items()
            if log.wanted is not None
        ]
        return size_for_consumers(self._size, wanted, self._parts.settings.sizes)

    def _run_micro_batch(self, taken: Taken) -> None:
        if taken.is_empty and not (taken.end_of_input and self._wants_close()):
            self._consume(taken, 0)
            return
        self._state.take_folded()
        self._batch += 1
        started = time.time()
        acks, try_number = self._run_tries(taken)
        self._publish(taken, acks, try_number, (started, time.time()))

    def _run_tries(self, taken: Taken) -> tuple[list[Acknowledgement], int]:
        parts, tries = self._parts, self._parts.settings.max_tries
        lost = ""
        for try_number in range(tries):
            if parts.board.stopping and try_number:
                raise _Stopped
            instruction = self._instruction(taken, try_number)
            path = parts.layout.instruction(self._stage.id, self._batch, try_number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(instruction))
            try:
                acks = parts.submitter.run(instruction, path)
            except MicroBatchLostError as error:
                lost = str(error)
                if parts.board.stopping:
                    raise _Stopped from error
                logger.warning(
                    "stage %r: try %d of micro-batch %d was lost and runs again: %s",
                    self._stage.name,
                    try_number + 1,
                    self._batch,
                    lost,
                )
                continue
            finally:
                path.unlink(missing_ok=True)
            for ack in acks:
                if ack.failure is not None:
                    raise unpack(ack.failure)
            return acks, try_number
        raise MicroBatchFailedError(self._stage.name, self._batch, tries, lost)

    def _instruction(self, taken: Taken, try_number: int) -> Instruction:
        work = [
            SubtaskWork(
                ranges=w.ranges,
                segments=w.segments,
                state=self._state.ref(i),
                previous=self._winners[i],
            )
            for i, w in enumerate(taken.work)
        ]
        return Instruction(
            job=str(self._parts.layout.shared),
            attempt=self._parts.layout.attempt,
            stage=self._stage.id,
            batch=self._batch,
            try_number=try_number,
            work=work,
            end_of_input=taken.end_of_input,
            key_slice=taken.key_slice,
        )

    def _publish(
        self,
        taken: Taken,
        acks: list[Acknowledgement],
        try_number: int,
        times: tuple[float, float],
    ) -> None:
        parts, (started, acknowledged) = self._parts, times
        segments = {
            int(channel): [o.segment for a in acks for o in a.outputs if o.channel == channel]
            for channel in parts.outputs
        }
        states = self._state.after(self._batch, acks)
        counters: dict[str, dict[str, int]] = {}
        for ack in acks:
            add_counts(counters, ack.counters)
        records = sum(a.records_in for a in acks)
        manifest = Manifest(
            stage=self._stage.id,
            batch=self._batch,
            try_number=try_number,
            winners=[a.name for a in acks],
            positions=taken.positions,
            consumed={int(c): n for c, n in taken.consumed.items()},
            segments=segments,
            state=[s for s in states if s.inline is None],
            records_in=records,
            counters=counters,
        )
        write_manifest(parts.layout.manifest(self._stage.id, self._batch), manifest)
        too_old = parts.layout.manifest(self._stage.id, self._batch - MANIFESTS_KEPT)
        too_old.unlink(missing_ok=True)
        self._state.accept(states)
        self._winners = [a.name for a in acks]
        for channel, log in parts.outputs.items():
            if segments[channel]:
                entry = Entry(EntryKind.DATA, tuple(segments[channel]))
                self._made[channel] = entry.rows / max(records, 1)
                log.append(entry)
        for node_id, publisher in parts.publishers.items():
            publisher.publish([a.sinks.get(node_id, b"") for a in acks])
        self._empty_staging()
        self._consume(taken, records)
        published = time.time()
        phases = max((a.phases for a in acks), key=lambda p: sum(p.values()), default={})
        self._size = next_size(
            self._size,
            records,
            published - started,
            sum(phases.values()),
            parts.settings.sizes,
        )
        parts.input.wants(self._size)
        parts.report(
            MicroBatchReport(
                stage=self._stage.id,
                stage_name=self._stage.name,
                batch=self._batch,
                tries=try_number + 1,
                started=started,
                acknowledged=acknowledged,
                published=published,
                records_in=records,
                records_out=sum(a.records_out for a in acks),
                phases=phases,
            ),
            counters,
        )
        self._warn_of_changed_fields(acks)
        if not taken.end_of_input:
            self._state.start_folding(self._batch)

    def _consume(self, taken: Taken, records: int) -> None:
        for channel, entry in self._parts.input.published(taken, records):
            for segment in entry.segments:
                (self._parts.layout.channel(channel) / segment.name).unlink(missing_ok=True)
        self._parts.board.change()

    def _empty_staging(self) -> None:
        """Remove what the sinks' tasks staged up to now, lost tries too."""
        for node_id in self._parts.publishers:
            uid = next(n.uid for n in self._stage.nodes if n.id == node_id)
            staging = self._parts.layout.staging(uid)
            if staging.exists():
                shutil.rmtree(staging, ignore_errors=True)

    def _finish(self) -> None:
        for publisher in self._parts.publishers.values():
            publisher.finish()
        for log in self._parts.outputs.values():
            log.append(END_OF_INPUT)
        self._parts.board.change()

    def _wants_close(self) -> bool:
        functions = [n.function for n in self._stage.nodes if isinstance(n.function, Function)]
        return self._batch > 0 and any(type(f).close is not Function.close for f in functions)

    def _warn_of_changed_fields(self, acks: list[Acknowledgement]) -> None:
        for ack in acks:
            for step, names in ack.changed_fields.items():
                if step not in self._warned:
                    self._warned.add(step)
                    logger.warning(
                        "step %r changed its fields %s after open(): plain fields do not survive "
                        "a micro-batch; keep what must last in keyed state",
                        step,
                        ", ".join(sorted(names)),
                    )
