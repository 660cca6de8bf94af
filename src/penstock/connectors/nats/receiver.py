"""Receives from a durable pull consumer of a JetStream stream."""
# ruff: noqa: D102 - the contract documents the methods of a receiver

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.nats.connection import NatsConnection
from penstock.connectors.nats.settings import (
    ALL_SUBJECTS,
    OWN_CONSUMER,
    NatsSettings,
    consumer_fault,
    sequence_of,
)
from penstock.connectors.receiver import Delivery, Receiver, ReceiverContext
from penstock.errors import (
    MissingStreamError,
    NatsConnectionError,
    OtherStreamError,
    UnfitConsumerError,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.api import ConsumerConfig, StreamInfo

__all__ = ["NatsReceiver"]

_log = logging.getLogger(__name__)

_API = "$JS.API"
_ACK, _PROGRESS, _NAK = b"+ACK", b"+WPI", b"-NAK"
_ASK_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_MAX_BYTES = 128 << 20
_ROOM_FOR_LATE_ONES = 20_000
_NOT_NOW = (TimeoutError, OSError)
_IDLE = "100"
_NOBODY = "503"
_LATELY_SECONDS = 10.0
_ACK_TRIES = 5
_ACK_RETRY_SECONDS = 1.0
_PATIENCE_AT_THE_END = 5
_GAPS_LOOKED_AT = 1_000
_HURRIED_ACK_WAIT = 0.05
_HURRY_SECONDS = 0.4


class NatsReceiver(Receiver):
    """Deliveries are numbered by the stream, and acknowledged by subject.

    A plain acknowledgement costs a small message and no answer. Whether it has arrived shows in
    the consumer's floor, asked for once per checkpoint; until then it is remembered anyway.
    """

    def __init__(self, settings: NatsSettings, context: ReceiverContext) -> None:
        self._settings = settings
        self._context = context
        self._arrived: deque[Msg] = deque()
        self._asked = 0
        self._asked_until = 0.0
        self._outages = 0
        self._must_look = False
        self._acknowledged: deque[tuple[float, Sequence[str]]] = deque()
        """What was acknowledged lately, and when: a server that dies may not have kept it."""
        self._outages_at_ack = 0
        self._created = context.notes.get("created")
        self._highest = int(context.notes.get("highest", 0))
        self._last: int | None = None
        """Behind which number a bounded source ends."""
        if settings.is_bounded and "last" in context.notes:
            self._last = int(context.notes["last"])
        self._times_not_ended = 0
        self._beyond: dict[int, str] = {}
        """By number: how to give back what came behind the end of a bounded source."""
        self.extend_after = settings.ack_wait / 3
        self._connection = NatsConnection(settings, f"penstock {context.job} {context.attempt}")
        try:
            self._connection.call(self._open())
        except BaseException:
            self._connection.close()
            raise

    def receive(self, limit: int, timeout: float) -> list[Delivery]:
        messages = self._connection.call(self._receive(limit, timeout))
        deliveries = []
        for message in messages:
            number = sequence_of(message.reply)
            if self._last is not None and number > self._last:
                self._beyond[number] = message.reply
            else:
                deliveries.append(Delivery(number, message.data, message.reply))
                self._highest = max(self._highest, number)
        return deliveries

    def acknowledge(self, handles: Sequence[Any]) -> bool:
        return self._connection.call(self._acknowledge(handles))

    def extend(self, handles: Sequence[Any]) -> None:
        self._connection.call(self._send(handles, _PROGRESS))

    def reject(self, handles: Sequence[Any]) -> None:
        waiting = [message.reply for message in self._arrived]
        if self._outages_at_ack != self._connection.outages:
            self.acknowledge([])
        self._connection.call(self._send([*handles, *waiting, *self._beyond.values()], _NAK))

    def acknowledged_up_to(self) -> int | None:
        with contextlib.suppress(*self._not_now):
            info = self._connection.call(self._consumer())
            return None if info.ack_floor is None else info.ack_floor.stream_seq
        return None

    def acknowledged_among(self, runs: Sequence[tuple[int, int]]) -> int | None:
        # Numbers begin with 1.
        there = [(max(start, 1), end) for start, end in runs if end > 1]
        try:
            return self._connection.call(self._acknowledged_among(there))
        except self._not_now as error:
            reason = f"JetStream does not answer: {error or type(error).__name__}"
            raise NatsConnectionError(self._settings.shown_servers, reason) from error

    def has_ended(self, waiting: int) -> bool:
        if self._last is None or self._arrived:
            return False
        with contextlib.suppress(*self._not_now):
            return self._connection.call(self._has_reached(self._last, waiting))
        return False

    def notes(self) -> dict[str, str]:
        notes = {"created": self._created or "", "highest": str(self._highest)}
        return notes if self._last is None else {**notes, "last": str(self._last)}

    def close(self) -> None:
        self._connection.close()

    # -- in the connection's thread ----------------------------------------------------------

    async def _open(self) -> None:
        from nats.errors import Error

        self._not_now: tuple[type[Exception], ...] = (*_NOT_NOW, Error)
        client = self._connection.client
        self._jetstream = client.jetstream(timeout=_ANSWER_SECONDS)
        self._event = asyncio.Event()
        self._inbox = client.new_inbox()
        try:
            stream = await self._check_stream()
            if self._settings.is_bounded and self._last is None:
                self._last = stream.state.last_seq
            await self._check_consumer()
            await self._hurry()
            await client.subscribe(self._inbox, cb=self._take)
        except self._not_now as error:
            reason = f"JetStream does not answer: {error or type(error).__name__}"
            raise NatsConnectionError(self._settings.shown_servers, reason) from error

    async def _take(self, message: Msg) -> None:
        self._arrived.append(message)
        self._event.set()

    async def _receive(self, limit: int, timeout: float) -> list[Msg]:
        try:
            await self._look_again()
            if not self._arrived:
                self._event.clear()
                await self._ask(limit)
                await asyncio.wait_for(self._event.wait(), timeout)
        except self._not_now:
            pass
        return [m for m in self._drained(limit) if not self._is_status(m)]

    async def _look_again(self) -> None:
        """See whether all is still there, after an outage or an answer that nobody was."""
        outages = self._connection.outages
        if not self._must_look and self._outages == outages:
            return
        await self._check_stream()
        await self._check_consumer()
        if self._outages != outages:
            # What was on its way when the connection broke is lost to both sides.
            await self._hurry()
        self._outages, self._must_look, self._asked = outages, False, 0

    async def _has_reached(self, last: int, waiting: int) -> bool:
        info = await self._consumer()
        if info.num_pending and info.delivered.stream_seq < last:
            return False
        if info.num_ack_pending <= waiting + len(self._beyond):
            return True
        # The rest is on its way, or was on its way to an attempt that is dead, or the server has
        # lost acknowledgements of it.
        self._times_not_ended += 1
        if self._times_not_ended % _PATIENCE_AT_THE_END == 0:
            await self._hurry()
        return False

    async def _acknowledged_among(self, runs: Sequence[tuple[int, int]]) -> int | None:
        """Look for a message that is still in the stream and will not be delivered.

        A stream that deletes what is acknowledged cannot show any: there every number without a
        message was one, unless it is of another subject.
        """
        from nats.js.api import RetentionPolicy
        from nats.js.errors import NotFoundError

        stream, subject = self._settings.stream, self._settings.subject
        for start, end in runs[:_GAPS_LOOKED_AT]:
            try:
                found = await self._jetstream.get_msg(
                    stream, seq=start, subject=subject or ALL_SUBJECTS, next=True
                )
            except NotFoundError:
                break
            if found.seq is not None and found.seq < end:
                return found.seq
        info = await self._jetstream.stream_info(stream)
        if not runs or info.config.retention == RetentionPolicy.LIMITS:
            return None
        if subject is None:
            return runs[0][0]
        _log.warning(
            "stream %r deletes what is acknowledged, and of %d numbers it has gone through "
            "nobody can tell whether they were of %r: messages that another job acknowledged "
            "would be missing here",
            stream,
            sum(end - start for start, end in runs),
            subject,
        )
        return None

    async def _ask(self, limit: int) -> None:
        now = asyncio.get_running_loop().time()
        if self._asked > 0 and now < self._asked_until:
            return
        self._asked, self._asked_until = limit, now + _ASK_SECONDS + _GRACE_SECONDS
        wish = {
            "batch": limit,
            "expires": int(_ASK_SECONDS * 1e9),
            "max_bytes": _MAX_BYTES,
        }
        subject = f"{_API}.CONSUMER.MSG.NEXT.{self._settings.stream}.{self._settings.durable}"
        await self._connection.client.publish(subject, json.dumps(wish).encode(), self._inbox)

    def _drained(self, limit: int) -> list[Msg]:
        count = min(limit, len(self._arrived))
        return [self._arrived.popleft() for _ in range(count)]

    def _is_status(self, message: Msg) -> bool:
        if message.reply:
            self._asked -= 1
            return False
        headers = message.headers or {}
        status = headers.get("Status")
        if status != _IDLE:
            # The request is over: too old, served in part, or nobody is there to serve it.
            self._asked = 0
            is_gone = "deleted" in headers.get("Description", "").lower()
            self._must_look = self._must_look or is_gone or status == _NOBODY
            _log.debug("JetStream says %s to a request for messages", headers)
        return True

    async def _acknowledge(self, subjects: Sequence[str]) -> bool:
        now = asyncio.get_running_loop().time()
        while self._acknowledged and self._acknowledged[0][0] < now - _LATELY_SECONDS:
            self._acknowledged.popleft()
        self._acknowledged.append((now, subjects))
        for _ in range(_ACK_TRIES):
            outages = self._connection.outages
            if outages != self._outages_at_ack:
                subjects = [subject for _, some in self._acknowledged for subject in some]
            if await self._send(subjects, _ACK):
                self._outages_at_ack = outages
                return True
            await asyncio.sleep(_ACK_RETRY_SECONDS)
        return False

    async def _send(self, subjects: Sequence[str], word: bytes) -> bool:
        client = self._connection.client
        try:
            for subject in subjects:
                await client.publish(subject, word)
            await client.flush(timeout=int(_ANSWER_SECONDS))
        except self._not_now:
            return False
        return True

    async def _consumer(self) -> Any:
        return await self._jetstream.consumer_info(self._settings.stream, self._settings.durable)

    async def _check_stream(self) -> StreamInfo:
        """Make sure that it is there, and that its numbers mean what they meant before."""
        from nats.js.errors import NotFoundError

        name = self._settings.stream
        try:
            info = await self._jetstream.stream_info(name)
        except NotFoundError:
            raise MissingStreamError(name, self._settings.shown_servers) from None
        created = "" if info.created is None else info.created.isoformat()
        if self._created is None:
            self._created = created
        if created != self._created:
            raise OtherStreamError(name, f"made at {created}, and that one at {self._created}")
        if info.state.last_seq < self._highest:
            reason = f"it ends at {info.state.last_seq}, and {self._highest} was read"
            raise OtherStreamError(name, reason)
        return info

    async def _check_consumer(self) -> None:
        """Create the durable consumer, or see whether the one that is there will do."""
        from nats.js.errors import NotFoundError

        stream, durable = self._settings.stream, self._settings.durable
        try:
            config = (await self._consumer()).config
        except NotFoundError:
            await self._create_consumer()
            return
        fault = consumer_fault(config, self._settings)
        if fault is not None:
            raise UnfitConsumerError(stream, durable, fault)
        wanted = self._wanted()
        fits = (config.ack_wait, config.max_ack_pending) == (
            wanted.ack_wait,
            wanted.max_ack_pending,
        )
        if config.description == OWN_CONSUMER and not fits:
            await self._create_consumer()
            return
        most = config.max_ack_pending or 0
        if 0 < most < self._context.max_unacknowledged:
            _log.warning(
                "consumer %r of stream %r allows %d unacknowledged messages (max_ack_pending): "
                "after so many the source waits for a checkpoint, also if it may have %d",
                durable,
                stream,
                most,
                self._context.max_unacknowledged,
            )
        self.extend_after = (config.ack_wait or self._settings.ack_wait) / 3

    async def _create_consumer(self) -> None:
        """Create it, or give one that is there these settings."""
        from nats.js.errors import BadRequestError

        stream = self._settings.stream
        try:
            await self._jetstream.add_consumer(stream, self._wanted())
        except BadRequestError as error:
            reason = str(error.description)
            raise UnfitConsumerError(stream, self._settings.durable, reason) from error

    async def _hurry(self) -> None:
        """Have delivered again at once what an attempt that is dead had in flight.

        The server looks at everything that waits when the time to wait becomes shorter. If this
        comes too early or is cut short, it just takes that time.
        """
        info = await self._consumer()
        if not info.num_ack_pending or info.config.description != OWN_CONSUMER:
            return
        wanted = self._wanted()
        # If anything goes wrong in between, the next look sets it right.
        self._must_look = True
        await self._jetstream.add_consumer(
            self._settings.stream, wanted.evolve(ack_wait=_HURRIED_ACK_WAIT)
        )
        await asyncio.sleep(_HURRY_SECONDS)
        await self._jetstream.add_consumer(self._settings.stream, wanted)

    def _wanted(self) -> ConsumerConfig:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        return ConsumerConfig(
            durable_name=self._settings.durable,
            description=OWN_CONSUMER,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._settings.ack_wait,
            max_deliver=-1,
            filter_subject=self._settings.subject,
            max_ack_pending=self._context.max_unacknowledged + _ROOM_FOR_LATE_ONES,
        )
