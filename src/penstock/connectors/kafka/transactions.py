"""Transactions of one account: records, and in the same transaction how far it has come.

The order is always: take over the transactional id, read the marker, then begin. Taking over
ends what any earlier producer of that id had begun and lets none of them begin or commit again.
So nobody moves the marker between this producer's reading it and this producer's commit, and as
long as its commits succeed it knows the marker without reading it. Whatever goes wrong, a commit
whose answer was lost included, the producer is thrown away: the next one takes over, reads the
marker, and knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from penstock.connectors.kafka.client import KafkaProperties, confluent, new_consumer
from penstock.connectors.kafka.in_time import in_time
from penstock.connectors.kafka.marker import Marker
from penstock.connectors.kafka.sending import Sender, answer_seconds, open_producer
from penstock.connectors.kafka.serialization import Message
from penstock.connectors.kafka.sink_trouble import told_by
from penstock.connectors.kafka.staged_part import Account
from penstock.connectors.kafka.topic_check import check_topic
from penstock.errors import KafkaDeliveryError

__all__ = ["MarkedTransactions"]

_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
_DELIVERY_TIMEOUT_MS = 2 * 60 * 1000
_GRACE_SECONDS = 2.0
_COMMIT_SECONDS = 120.0
# The first question a cluster is asked about any group makes it create the topic of offsets.
_COORDINATOR_COMES = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
_COORDINATOR_SECONDS = 0.1
_LONGEST_REQUEST_SECONDS = 30.0


class MarkedTransactions:
    """Publishes for one account; used by one thread at a time."""

    def __init__(self, properties: KafkaProperties, account: Account) -> None:
        self._properties = properties
        self._account = account
        self._answer_seconds = answer_seconds(properties)
        self._kafka = confluent()
        self._producer: Any = None
        self._group: Any = None
        self._marker: Marker | None = None
        self._was_cut_off = False

    @property
    def marker(self) -> Marker | None:
        """What the account has published, once open; None if nobody ever said, or it is lost."""
        return self._marker

    def open(self) -> None:
        """Take over, and read the marker; nothing to do while nothing has failed.

        A producer that has lost its broker since is thrown away too: the first transaction that it
        would begin behind that hangs until it times out.
        """
        if self._producer is not None:
            self._producer.poll(0)
            if not self._was_cut_off:
                return
            self.close()
        try:
            self._take_over()
            self._was_cut_off = False
        except self._kafka.KafkaException as error:
            self.close()
            raise told_by(error.args[0], self._account, self._servers) from error
        except BaseException:
            self.close()
            raise

    def run(self, blocks: Iterable[tuple[str, list[Message]]], marker: Marker) -> None:
        """Publish messages and move the marker, both or neither; `open` comes first.

        After an exception nobody knows which, until `open` has been called again.
        """
        producer, sender = self._producer, Sender(self._producer)
        try:
            producer.begin_transaction()
            for topic, messages in blocks:
                sender.send(topic, messages)
            self._move(producer, marker)
            self._commit(producer, sender)
        except self._kafka.KafkaException as error:
            # Looked at before the rest is purged, which counts as failed too.
            is_undelivered = sender.failure is not None
            self._drop(producer)
            if is_undelivered:
                raise self._undelivered(sender) from error
            raise told_by(error.args[0], self._account, self._servers) from error
        except KafkaDeliveryError as error:
            self._drop(producer)
            raise self._undelivered(sender) from error
        except BaseException:
            self._drop(producer)
            raise
        self._marker = marker

    def close(self) -> None:
        """Let go of the connections; what was begun is not committed."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = self._group = self._marker = None

    def _take_over(self) -> None:
        account = self._account
        self._producer = open_producer(
            KafkaProperties({**_patience(self._properties), **self._properties}),
            error_cb=self._on_error,
            transactional_id=account.transactional_id,
            # The client's own timeouts end some of its calls only with that of a request.
            socket_timeout_ms=int(min(self._answer_seconds, _LONGEST_REQUEST_SECONDS) * 1000),
        )
        consumer = new_consumer(
            # One that waits for offsets of a transaction that is about to be ended.
            self._properties,
            group_id=account.group,
            isolation_level="read_committed",
        )
        try:
            # The client takes half a second longer to take over if it has no connection yet.
            check_topic(self._producer, account.topic, self._servers, self._answer_seconds)
            self._producer.init_transactions(self._answer_seconds)
            found = self._committed(consumer)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self._marker = Marker.read(found.metadata) if found.offset >= 0 else None

    def _on_error(self, error: Any) -> None:
        lost = (self._kafka.KafkaError._TRANSPORT, self._kafka.KafkaError._ALL_BROKERS_DOWN)
        self._was_cut_off |= error.code() in lost

    def _committed(self, consumer: Any) -> Any:
        """Ask for the marker; a coordinator that is just being found or loaded is waited for."""
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                found = consumer.committed([self._place()], self._answer_seconds)[0]
                if found.error is not None:
                    raise self._kafka.KafkaException(found.error)
            except self._kafka.KafkaException as error:
                if error.args[0].name() not in _COORDINATOR_COMES or time.monotonic() > deadline:
                    raise
                time.sleep(_COORDINATOR_SECONDS)
            else:
                return found

    def _move(self, producer: Any, marker: Marker) -> None:
        place = [self._place(marker.offset, marker.text)]
        in_time(
            self._answer_seconds + _GRACE_SECONDS,
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(place, self._group, self._answer_seconds),
        )

    def _commit(self, producer: Any, sender: Sender) -> None:
        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                producer.commit_transaction(self._answer_seconds)
            except self._kafka.KafkaException as error:
                sender.check()
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _drop(self, producer: Any) -> None:
        producer.purge()
        with suppress(self._kafka.KafkaException):
            # The next one would end it too; until then readers would wait.
            producer.abort_transaction(2.0)
        self.close()

    def _undelivered(self, sender: Sender) -> Exception:
        assert sender.failure is not None
        assert sender.failure_code is not None
        error = self._kafka.KafkaError(sender.failure_code, sender.failure.reason)
        return told_by(error, self._account, self._servers, sender.failure)

    def _place(self, *offset_and_text: Any) -> Any:
        return self._kafka.TopicPartition(self._account.topic, 0, *offset_and_text)

    @property
    def _servers(self) -> str:
        return self._properties.get("bootstrap.servers", "")


def _patience(properties: KafkaProperties) -> dict[str, int]:
    """Give what Java's properties leave open; a message may not outlive its transaction."""
    text = properties.get("transaction.timeout.ms", "").strip()
    timeout = int(text) if text.isdigit() else _TRANSACTION_TIMEOUT_MS
    if "message.timeout.ms" in properties or "delivery.timeout.ms" in properties:
        return {"transaction.timeout.ms": timeout}
    return {
        "transaction.timeout.ms": timeout,
        "delivery.timeout.ms": min(timeout, _DELIVERY_TIMEOUT_MS),
    }
