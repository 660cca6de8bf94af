"""Receiver for a durable pull consumer of a JetStream stream."""
# ruff: noqa: D102 - the contract documents the methods of a receiver

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.acknowledging.receiver import Delivery, Receiver, ReceiverContext
from penstock.connectors.nats.connection import NatsConnection
from penstock.connectors.nats.settings import (
    ALL_SUBJECTS,
    OWN_CONSUMER,
    NatsSettings,
    consumer_fault,
    sequence_of,
)
from penstock.errors import (
    DifferentStreamError,
    MissingStreamError,
    NatsConnectionError,
    UnsuitableConsumerError,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.api import ConsumerConfig, StreamInfo

_log = logging.getLogger(__name__)

_API = "$JS.API"
_ACK, _PROGRESS, _NAK = b"+ACK", b"+WPI", b"-NAK"
_PULL_SECONDS = 5.0
_GRACE_SECONDS = 1.0
_TIMEOUT_SECONDS = 2.0
_MAX_BYTES = 128 << 20
_EXTRA_ACK_PENDING = 20_000
_TRANSIENT = (TimeoutError, OSError)
_IDLE_HEARTBEAT = "100"
_NO_RESPONDERS = "503"
_RECENT_SECONDS = 10.0
_ACK_TRIES = 5
_ACK_RETRY_SECONDS = 1.0
_END_CHECKS = 5
_MAX_GAPS = 1_000
_SHORT_ACK_WAIT = 0.05
_REDELIVERY_SECONDS = 0.4


class NatsReceiver(Receiver):
    """Receives messages with their stream sequence, and acknowledges them by reply subject.

    A plain acknowledgement is a small message without a response. The consumer's ack floor,
    requested once per checkpoint, shows whether it has arrived; until then the id is kept anyway.
    """

    def __init__(self, settings: NatsSettings, context: ReceiverContext) -> None:
        self._settings = settings
        self._context = context
        self._arrived: deque[Msg] = deque()
        self._requested = 0
        self._requested_until = 0.0
        self._reconnects = 0
        self._must_check = False
        self._acknowledged: deque[tuple[float, Sequence[str]]] = deque()
        """Recent acknowledgements and their times: a server that dies may have lost them."""
        self._reconnects_at_ack = 0
        self._created = context.notes.get("created")
        self._highest = int(context.notes.get("highest", 0))
        self._last: int | None = None
        """The last sequence of a bounded source."""
        if settings.is_bounded and "last" in context.notes:
            self._last = int(context.notes["last"])
        self._end_checks = 0
        self._after_end: dict[int, str] = {}
        """By sequence: reply subjects of messages after the end of a bounded source."""
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
                self._after_end[number] = message.reply
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
        if self._reconnects_at_ack != self._connection.reconnects:
            self.acknowledge([])
        self._connection.call(self._send([*handles, *waiting, *self._after_end.values()], _NAK))

    def acknowledged_up_to(self) -> int | None:
        with contextlib.suppress(*self._transient):
            info = self._connection.call(self._consumer())
            return None if info.ack_floor is None else info.ack_floor.stream_seq
        return None

    def acknowledged_among(self, ranges: Sequence[tuple[int, int]]) -> int | None:
        # Sequences start at 1.
        used = [(max(start, 1), end) for start, end in ranges if end > 1]
        try:
            return self._connection.call(self._acknowledged_among(used))
        except self._transient as error:
            raise self._no_response(error) from error

    def has_ended(self, waiting: int) -> bool:
        if self._last is None or self._arrived:
            return False
        with contextlib.suppress(*self._transient):
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

        self._transient: tuple[type[Exception], ...] = (*_TRANSIENT, Error)
        client = self._connection.client
        self._jetstream = client.jetstream(timeout=_TIMEOUT_SECONDS)
        self._event = asyncio.Event()
        self._reply_subject = client.new_inbox()
        try:
            stream = await self._check_stream()
            if self._settings.is_bounded and self._last is None:
                self._last = stream.state.last_seq
            await self._check_consumer()
            await self._redeliver()
            await client.subscribe(self._reply_subject, cb=self._on_message)
        except self._transient as error:
            raise self._no_response(error) from error

    def _no_response(self, error: Exception) -> NatsConnectionError:
        reason = f"JetStream does not respond: {error or type(error).__name__}"
        return NatsConnectionError(self._settings.shown_servers, reason)

    async def _on_message(self, message: Msg) -> None:
        self._arrived.append(message)
        self._event.set()

    async def _receive(self, limit: int, timeout: float) -> list[Msg]:
        try:
            await self._check_again()
            if not self._arrived:
                self._event.clear()
                await self._request(limit)
                await asyncio.wait_for(self._event.wait(), timeout)
        except self._transient:
            pass
        arrived = [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]
        return [message for message in arrived if not self._is_status(message)]

    async def _check_again(self) -> None:
        """Check stream and consumer after a reconnection or a response without responders."""
        reconnects = self._connection.reconnects
        if not self._must_check and self._reconnects == reconnects:
            return
        await self._check_stream()
        await self._check_consumer()
        if self._reconnects != reconnects:
            # Messages in flight when the connection broke are lost to both sides.
            await self._redeliver()
        self._reconnects, self._must_check, self._requested = reconnects, False, 0

    async def _has_reached(self, last: int, waiting: int) -> bool:
        info = await self._consumer()
        if info.num_pending and info.delivered.stream_seq < last:
            return False
        if info.num_ack_pending <= waiting + len(self._after_end):
            return True
        # The rest is in flight, or was in flight to a dead attempt, or the server has lost its
        # acknowledgements.
        self._end_checks += 1
        if self._end_checks % _END_CHECKS == 0:
            await self._redeliver()
        return False

    async def _acknowledged_among(self, ranges: Sequence[tuple[int, int]]) -> int | None:
        """Return the sequence of a message in the stream that will not be delivered.

        A stream that deletes acknowledged messages does not show them: there every sequence
        without a message was one, unless it had another subject.
        """
        from nats.js.api import RetentionPolicy
        from nats.js.errors import NotFoundError

        stream, subject = self._settings.stream, self._settings.subject
        for start, end in ranges[:_MAX_GAPS]:
            try:
                found = await self._jetstream.get_msg(
                    stream, seq=start, subject=subject or ALL_SUBJECTS, next=True
                )
            except NotFoundError:
                break
            if found.seq is not None and found.seq < end:
                return found.seq
        info = await self._jetstream.stream_info(stream)
        if not ranges or info.config.retention == RetentionPolicy.LIMITS:
            return None
        if subject is None:
            return ranges[0][0]
        _log.warning(
            "Stream %r deletes acknowledged messages, and %d sequences may or may not have had "
            "subject %r: if another job acknowledged such messages, this job misses them",
            stream,
            sum(end - start for start, end in ranges),
            subject,
        )
        return None

    async def _request(self, limit: int) -> None:
        now = asyncio.get_running_loop().time()
        if self._requested > 0 and now < self._requested_until:
            return
        self._requested, self._requested_until = limit, now + _PULL_SECONDS + _GRACE_SECONDS
        options = {"batch": limit, "expires": int(_PULL_SECONDS * 1e9), "max_bytes": _MAX_BYTES}
        subject = f"{_API}.CONSUMER.MSG.NEXT.{self._settings.stream}.{self._settings.durable}"
        await self._connection.client.publish(
            subject, json.dumps(options).encode(), self._reply_subject
        )

    def _is_status(self, message: Msg) -> bool:
        if message.reply:
            self._requested -= 1
            return False
        headers = message.headers or {}
        status = headers.get("Status")
        if status != _IDLE_HEARTBEAT:
            # The request has ended: expired, served in part, or without responders.
            self._requested = 0
            is_deleted = "deleted" in headers.get("Description", "").lower()
            self._must_check = self._must_check or is_deleted or status == _NO_RESPONDERS
            _log.debug("JetStream answered %s to a pull request", headers)
        return True

    async def _acknowledge(self, subjects: Sequence[str]) -> bool:
        now = asyncio.get_running_loop().time()
        while self._acknowledged and self._acknowledged[0][0] < now - _RECENT_SECONDS:
            self._acknowledged.popleft()
        self._acknowledged.append((now, subjects))
        for _ in range(_ACK_TRIES):
            reconnects = self._connection.reconnects
            if reconnects != self._reconnects_at_ack:
                subjects = [subject for _, some in self._acknowledged for subject in some]
            if await self._send(subjects, _ACK):
                self._reconnects_at_ack = reconnects
                return True
            await asyncio.sleep(_ACK_RETRY_SECONDS)
        return False

    async def _send(self, subjects: Sequence[str], word: bytes) -> bool:
        client = self._connection.client
        try:
            for subject in subjects:
                await client.publish(subject, word)
            await client.flush(timeout=int(_TIMEOUT_SECONDS))
        except self._transient:
            return False
        return True

    async def _consumer(self) -> Any:
        return await self._jetstream.consumer_info(self._settings.stream, self._settings.durable)

    async def _check_stream(self) -> StreamInfo:
        """Check that the stream exists, and that its sequences still mean the same messages."""
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
            reason = f"it was created at {created}, the other one at {self._created}"
            raise DifferentStreamError(name, reason)
        if info.state.last_seq < self._highest:
            reason = f"it ends at {info.state.last_seq}, but {self._highest} was read"
            raise DifferentStreamError(name, reason)
        return info

    async def _check_consumer(self) -> None:
        """Create the durable consumer, or check the existing one."""
        from nats.js.errors import NotFoundError

        stream, durable = self._settings.stream, self._settings.durable
        try:
            config = (await self._consumer()).config
        except NotFoundError:
            await self._create_consumer()
            return
        fault = consumer_fault(config, self._settings)
        if fault is not None:
            raise UnsuitableConsumerError(stream, durable, fault)
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
                "Consumer %r of stream %r allows %d unacknowledged messages (max_ack_pending), "
                "the source %d: it waits for a checkpoint earlier than configured",
                durable,
                stream,
                most,
                self._context.max_unacknowledged,
            )
        self.extend_after = (config.ack_wait or self._settings.ack_wait) / 3

    async def _create_consumer(self) -> None:
        """Create the consumer, or update an existing one."""
        from nats.js.errors import BadRequestError

        stream = self._settings.stream
        try:
            await self._jetstream.add_consumer(stream, self._wanted())
        except BadRequestError as error:
            reason = str(error.description)
            raise UnsuitableConsumerError(stream, self._settings.durable, reason) from error

    async def _redeliver(self) -> None:
        """Make the server redeliver immediately what a dead attempt had in flight.

        The server checks all pending messages when the ack wait becomes shorter. If this fails or
        is too early, they are redelivered after the normal ack wait.
        """
        info = await self._consumer()
        if not info.num_ack_pending or info.config.description != OWN_CONSUMER:
            return
        wanted = self._wanted()
        # After a crash or error between the two updates, the next check restores the setting.
        self._must_check = True
        await self._jetstream.add_consumer(
            self._settings.stream, wanted.evolve(ack_wait=_SHORT_ACK_WAIT)
        )
        await asyncio.sleep(_REDELIVERY_SECONDS)
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
            max_ack_pending=self._context.max_unacknowledged + _EXTRA_ACK_PENDING,
        )
