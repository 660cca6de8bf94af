"""The contract of acknowledging sources: brokers that want an ack instead of an offset.

Such a broker delivers a message again until it is acknowledged, and forgets it then. So a source
acknowledges only what a completed checkpoint holds, and a checkpoint holds the ids of everything
before its cut: what comes again after a crash is dropped. Everything behind the cut was never
acknowledged and comes again by itself.
"""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

import logging
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.acknowledgement_mark import AcknowledgementMark, Cut
from penstock.connectors.counted import contiguous_pieces
from penstock.connectors.received_log import ReceivedLog, read_received
from penstock.connectors.receiver import Delivery, Receiver, ReceiverContext
from penstock.connectors.receiving import Receiving
from penstock.connectors.reception import Reception
from penstock.connectors.seen_ids import SeenIds
from penstock.connectors.source import (
    Boundedness,
    Chunk,
    EnumeratorContext,
    Plan,
    Source,
    SourceEnumerator,
    SplitRange,
)
from penstock.errors import AcknowledgedRecordsError, InvalidJobError, UndecodableMessageError
from penstock.ids import is_no_later

__all__ = ["AcknowledgingSource", "Delivery", "Receiver", "ReceiverContext"]

_log = logging.getLogger(__name__)


class AcknowledgingSource(Source):
    """Records of a broker that wants acknowledgements; each one counts exactly once.

    Implement :meth:`receiver` and :meth:`deserialize`. Needs checkpoints: without them nothing
    could ever be acknowledged. One job at a time on one queue or durable consumer: ids are
    remembered by the job, so that another one would take as new what this one has in flight.
    """

    max_unacknowledged: int = 1_000_000
    """How many records wait for their checkpoint before no more are received.

    Each takes some hundred bytes of the driver's memory.
    """

    redelivery_horizon: float = 24 * 3600.0
    """How many seconds after a restore the broker may come again with what it was delivering.

    For ids that are texts; numbers are never forgotten.
    """

    fail_on_data_loss: bool = True
    """Whether to refuse a snapshot that lies before what the broker was told to forget."""

    @abstractmethod
    def receiver(self, context: ReceiverContext) -> Receiver:
        """Connect to the broker; called on the driver, once per attempt of the job.

        What makes the source unusable is raised here: a missing queue, a wrong password.
        """

    @abstractmethod
    def deserialize(self, payload: bytes) -> Any:
        """Return the record a message holds, in a task; None leaves the message out.

        May be called again for the same message and must return the same.
        """

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def enumerator(self, context: EnumeratorContext) -> SourceEnumerator:
        if not context.checkpointed:
            message = (
                "a source that acknowledges needs checkpoints: without them the broker would keep "
                "everything and deliver it again; call env.enable_checkpointing(interval)"
            )
            raise InvalidJobError(message)
        return _Enumerator(self, context)

    def read(self, split_range: SplitRange) -> Iterator[Chunk]:
        log = Path(split_range.split)
        for payloads in read_received(log, split_range.start, split_range.end):
            records = self._decoded(payloads)
            yield [record for record in records if record is not None]

    def _decoded(self, payloads: list[bytes]) -> list[Any]:
        records: list[Any] = []
        try:
            for payload in payloads:
                records.append(self.deserialize(payload))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UndecodableMessageError(payloads[len(records)], reason) from error
        return records


class _Memory(msgspec.Struct):
    """What a checkpoint holds besides positions."""

    cut: Cut
    notes: dict[str, str]
    seen: bytes


class _Enumerator(SourceEnumerator):
    """Plans what is in the log of this attempt, whose only split is named after the attempt.

    Positions of other attempts mean nothing to it: their records behind the cut come again.
    """

    def __init__(self, source: AcknowledgingSource, context: EnumeratorContext) -> None:
        self._source = source
        self._context = context
        # A directory of the user's own may be shared by jobs.
        self._directory = context.work_dir / context.job
        self._mark = AcknowledgementMark(self._directory)
        self._seen = SeenIds(context.clock, source.redelivery_horizon)
        self._reception = Reception(self._seen)
        self._recalled: _Memory | None = None
        self._log: ReceivedLog | None = None
        self._receiver: Receiver | None = None
        self._receiving: Receiving | None = None

    def recall(self, memory: bytes) -> None:
        self._recalled = msgspec.msgpack.decode(memory, type=_Memory)
        self._seen.decode(self._recalled.seen)

    def start(self, positions: Mapping[str, int]) -> None:
        self._check_nothing_is_lost()
        logs = self._directory / "received"
        self._remove_older(logs)
        log = self._log = ReceivedLog(logs / self._context.attempt)
        limit = self._source.max_unacknowledged
        receiver = self._receiver = self._source.receiver(
            ReceiverContext(
                self._context.job,
                self._context.attempt,
                limit,
                {} if self._recalled is None else self._recalled.notes,
            )
        )
        try:
            self._check_nobody_else_acknowledged(receiver)
        except BaseException:
            receiver.close()
            raise
        self._receiving = Receiving(receiver, self._reception, log, limit, self._context.wake)
        self._receiving.start()

    def plan(self, max_records: int) -> Plan:
        start, end = self._reception.plan(max_records)
        if start < end:
            assert self._log is not None
            return contiguous_pieces(
                str(self._log.directory), start, end, self._context.parallelism
            )
        if self._receiving is not None and self._receiving.error is not None:
            raise self._receiving.error
        return []

    def positions(self) -> dict[str, int]:
        return {self._context.attempt: self._reception.planned}

    def memory(self) -> bytes:
        assert self._receiver is not None
        return msgspec.msgpack.encode(
            _Memory(
                self._cut(self._reception.planned),
                self._receiver.notes(),
                self._reception.encode(),
            )
        )

    def finished(self) -> bool:
        # In this order: no record comes behind the end.
        is_over = self._receiving is not None and self._receiving.has_ended
        return is_over and not self._reception.has_more

    def next_poll(self) -> float | None:
        return 0.0 if self._reception.has_more else None

    def completed(self, positions: Mapping[str, int]) -> None:
        position = positions.get(self._context.attempt)
        if position is None:
            return
        self._mark.write(self._cut(position))
        self._reception.settle(position)
        assert self._log is not None
        self._log.trim(position)

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.stop()
        if self._log is not None:
            self._log.remove()

    def _cut(self, position: int) -> Cut:
        return Cut(self._context.job, self._context.attempt, position)

    def _remove_older(self, logs: Path) -> None:
        """Remove what older attempts received: it was published, or it comes again.

        What a later one receives is not this attempt's to judge.
        """
        for log in logs.glob("*"):
            if is_no_later(log.name, self._context.attempt):
                shutil.rmtree(log, ignore_errors=True)

    def _check_nobody_else_acknowledged(self, receiver: Receiver) -> None:
        """Ask the broker whether messages are gone for good that this job has not seen.

        The mark knows only of this life of the job: another one, or another job, may have gone
        on from the same snapshot.
        """
        number = receiver.acknowledged_up_to()
        if number is None:
            return
        if self._recalled is None:
            # A job that begins, begins behind them.
            self._reception.acknowledged_up_to(number)
            return
        missing = self._seen.missing_up_to(number)
        lost = receiver.acknowledged_among(missing) if missing else None
        if lost is None:
            return
        cut, marked = str(self._recalled.cut), f"the broker's message {number + 1}"
        if self._source.fail_on_data_loss:
            raise AcknowledgedRecordsError(cut, marked)
        _log.warning(
            "message %d was acknowledged by another job, or another life of this one, and is not "
            "in what is restored (%s): the job goes on without what lies before %s",
            lost,
            cut,
            marked,
        )

    def _check_nothing_is_lost(self) -> None:
        """Compare the cut that is restored with what the broker was told to forget.

        What the cut holds is acknowledged from now on when it comes again, so it is marked too.
        """
        if self._recalled is None:
            return
        mark, cut = self._mark.read(), self._recalled.cut
        if mark is None or not cut.is_before(mark):
            self._mark.write(cut)
        elif self._source.fail_on_data_loss:
            raise AcknowledgedRecordsError(str(cut), str(mark))
