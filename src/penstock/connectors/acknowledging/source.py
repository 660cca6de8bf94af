"""The contract of acknowledging sources: their brokers need acknowledgements, not offsets.

Such a broker redelivers a message until it is acknowledged, and then deletes it. So a source only
acknowledges what a completed checkpoint includes, and the checkpoint holds the ids of all these
messages: redeliveries after a crash are dropped. What comes after the checkpoint was never
acknowledged, and is redelivered.
"""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import copy
import logging
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.acknowledging.acknowledgement_mark import (
    AcknowledgementMark,
    SnapshotPoint,
)
from penstock.connectors.acknowledging.delivery_tracker import DeliveryTracker
from penstock.connectors.acknowledging.received_log import ReceivedLog, read_received
from penstock.connectors.acknowledging.receiver import Delivery, Receiver, ReceiverContext
from penstock.connectors.acknowledging.receiver_loop import ReceiverLoop
from penstock.connectors.acknowledging.seen_ids import SeenIds
from penstock.connectors.contracts.builder_checks import require
from penstock.connectors.contracts.input_settings import DEFAULT_INPUT_SETTINGS, InputSettings
from penstock.connectors.contracts.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    ReadPlan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.connectors.indexed_sources import divide_range
from penstock.errors import AcknowledgedRecordsError, UndecodableMessageError
from penstock.ids import is_no_later

__all__ = ["AcknowledgingSource", "Delivery", "Receiver", "ReceiverContext"]

_log = logging.getLogger(__name__)


class AcknowledgingSource(Source):
    """Reads from a broker that needs acknowledgements; each message counts exactly once.

    Implement :meth:`receiver` and :meth:`deserialize`. Checkpoints are required: without them
    nothing is ever acknowledged. Only one job may use a queue or durable consumer at a time: a job
    does not know the ids of messages that another one has in flight.
    """

    reads_work_dir = True

    max_unacknowledged: int = 1_000_000
    """How many records may wait for their checkpoint before the source stops receiving.

    Each takes a few hundred bytes of the driver's memory.
    """

    redelivery_horizon: float = 24 * 3600.0
    """For how many seconds after a restore the broker may redeliver messages.

    For ids that are strings; numbers are never forgotten.
    """

    fail_on_data_loss: bool = True
    """Whether to reject a snapshot that is older than what was acknowledged."""

    _input_settings: InputSettings = DEFAULT_INPUT_SETTINGS

    def with_settings(self, settings: InputSettings) -> AcknowledgingSource:
        configured = copy.copy(self)
        configured._input_settings = settings
        return configured

    @abstractmethod
    def receiver(self, context: ReceiverContext) -> Receiver:
        """Connect to the broker; called on the driver, once per attempt of the job.

        Raises if the source is unusable: the queue is missing, or the password is wrong.
        """

    @abstractmethod
    def deserialize(self, payload: bytes) -> Any:
        """Return the record of a message, in a task; None drops the message.

        It may be called again for the same message and must return the same record.
        """

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        message = (
            "an acknowledging source needs checkpoints: without them nothing is acknowledged "
            "and the broker redelivers everything; call env.enable_checkpointing(interval)"
        )
        require(context.checkpointed, message)
        return _Enumerator(self, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        log = Path(split_range.split)
        for payloads in read_received(log, split_range.start, split_range.end):
            records = []
            try:
                for payload in payloads:
                    records.append(self.deserialize(payload))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise UndecodableMessageError(payload, reason) from error
            yield [record for record in records if record is not None]


class _State(msgspec.Struct):
    """What a checkpoint holds in addition to the positions."""

    point: SnapshotPoint = msgspec.field(name="cut")
    notes: dict[str, str]
    seen: bytes


class _Enumerator(SourceEnumerator):
    """Plans reads of the records this attempt received; the only split is the attempt.

    Positions of other attempts are ignored: records after the snapshot point are redelivered.
    """

    def __init__(self, source: AcknowledgingSource, context: EnumeratorContext) -> None:
        self._source = source
        self._context = context
        # Several jobs may share a directory that the user has set.
        self._directory = context.work_dir / context.job
        # The log need not outlive the driver: the broker redelivers what is in it.
        self._mark = AcknowledgementMark(
            (context.store or context.work_dir) / context.job, context.attempt
        )
        self._seen = SeenIds(context.clock, source.redelivery_horizon)
        self._tracker = DeliveryTracker(self._seen)
        self._restored: _State | None = None
        self._log: ReceivedLog | None = None
        self._receiver: Receiver | None = None
        self._loop: ReceiverLoop | None = None

    def restore_state(self, memory: bytes) -> None:
        self._restored = msgspec.msgpack.decode(memory, type=_State)
        self._seen.decode(self._restored.seen)

    def start(self, positions: Mapping[str, int]) -> None:
        self._check_mark()
        logs = self._directory / "received"
        self._remove_older(logs)
        log = self._log = ReceivedLog(logs / self._context.attempt, self._source._input_settings)
        limit = self._source.max_unacknowledged
        notes = {} if self._restored is None else self._restored.notes
        receiver = self._receiver = self._source.receiver(
            ReceiverContext(self._context.job, self._context.attempt, limit, notes)
        )
        try:
            self._check_acknowledged_by_others(receiver)
        except BaseException:
            receiver.close()
            raise
        self._loop = ReceiverLoop(
            receiver, self._tracker, log, limit, self._context.wake, self._context.check_owner
        )
        self._loop.start()

    def plan(self, max_records: int) -> ReadPlan:
        start, end = self._tracker.plan(max_records)
        if start < end:
            assert self._log is not None
            return divide_range(str(self._log.directory), start, end, self._context.parallelism)
        if self._loop is not None and self._loop.error is not None:
            raise self._loop.error
        return []

    def positions(self) -> dict[str, int]:
        return {self._context.attempt: self._tracker.planned}

    def snapshot_state(self) -> bytes:
        assert self._receiver is not None
        point = self._point(self._tracker.planned)
        return msgspec.msgpack.encode(_State(point, self._receiver.notes(), self._tracker.encode()))

    def finished(self) -> bool:
        # In this order: no record is received after the end.
        has_ended = self._loop is not None and self._loop.has_ended
        return has_ended and not self._tracker.has_more

    def next_poll(self) -> float | None:
        return 0.0 if self._tracker.has_more else None

    def pending_records(self) -> int:
        return self._tracker.pending

    def notify_checkpoint_complete(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._context.attempt)
        if position is None:
            return
        # The mark first: a crash after the first acknowledgement must find it.
        self._mark.write(self._point(position))
        self._tracker.checkpoint(position)
        assert self._log is not None
        self._log.trim(position)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        if self._log is not None:
            self._log.remove()

    def _point(self, position: int) -> SnapshotPoint:
        return SnapshotPoint(self._context.job, self._context.attempt, position)

    def _remove_older(self, logs: Path) -> None:
        """Remove the logs of older attempts: their records are published, or redelivered.

        Logs of later attempts stay: this one may be a suspended driver.
        """
        for log in logs.glob("*"):
            if is_no_later(log.name, self._context.attempt):
                shutil.rmtree(log, ignore_errors=True)

    def _check_acknowledged_by_others(self, receiver: Receiver) -> None:
        """Check whether messages that this job has not seen are acknowledged.

        The mark only covers this restore lineage: another one, or another job, may have continued
        from the same snapshot.
        """
        number = receiver.acknowledged_up_to()
        if number is None:
            return
        if self._restored is None:
            # A job that starts fresh starts after them.
            self._tracker.acknowledged_up_to(number)
            return
        missing = self._seen.numbers.missing_up_to(number)
        lost = receiver.acknowledged_among(missing) if missing else None
        if lost is None:
            return
        restored, acknowledged = str(self._restored.point), f"the broker's message {number + 1}"
        if self._source.fail_on_data_loss:
            raise AcknowledgedRecordsError(restored, acknowledged)
        _log.warning(
            "Message %d was acknowledged by another job, or another restore of this one, and is "
            "not in the restored snapshot (%s): the job continues without what precedes %s",
            lost,
            restored,
            acknowledged,
        )

    def _check_mark(self) -> None:
        """Check that the restored snapshot includes everything that was acknowledged.

        Redeliveries of what it includes are acknowledged from now on, so the mark moves to it.
        """
        if self._restored is None:
            return
        mark, point = self._mark.read(), self._restored.point
        if mark is None or not point.is_before(mark):
            self._mark.write(point)
        elif self._source.fail_on_data_loss:
            raise AcknowledgedRecordsError(str(point), str(mark))
