"""Kafka transactions that publish records and move the commit marker atomically.

The order is always: `init_transactions`, read the marker, begin. `init_transactions` aborts what an
earlier producer of the transactional id had begun and fences that producer. So no other producer
moves the marker between reading it and the commit, and as long as commits succeed the marker is
known without reading it. After any failure, such as a commit whose response was lost, the producer
is discarded: the next one fences it, reads the marker, and knows what was committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.connectors.kafka.client import (
    KafkaProperties,
    call_with_timeout,
    confluent,
    new_consumer,
    retry,
)
from penstock.connectors.kafka.sink.commit_marker import CommitMarker
from penstock.connectors.kafka.sink.committable import TransactionalIdentity
from penstock.connectors.kafka.sink.producer import (
    MessageSender,
    check_topic,
    max_block_seconds,
    open_producer,
)
from penstock.connectors.kafka.sink.serialization import Message
from penstock.errors import (
    ConnectorError,
    KafkaDeliveryError,
    KafkaFencedError,
    KafkaSinkRefusedError,
    KafkaUnreachableError,
)

_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
_DELIVERY_TIMEOUT_MS = 2 * 60 * 1000
_GRACE_SECONDS = 2.0
_COMMIT_SECONDS = 120.0
_ABORT_SECONDS = 2.0
# A cluster creates its offsets topic at the first request about any group.
_COORDINATOR_LOADING = frozenset(
    {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)
_COORDINATOR_RETRY_SECONDS = 0.1
_MAX_REQUEST_SECONDS = 30.0

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

_REMEDIES = {
    "CLUSTER_AUTHORIZATION_FAILED": "allow it with an ACL",
    "GROUP_AUTHORIZATION_FAILED": "allow READ on the group named here with an ACL",
    "INVALID_RECORD": "correct the topic's settings",
    "INVALID_TIMESTAMP": "correct set_timestamp(), or the topic's limits for times",
    "INVALID_TRANSACTION_TIMEOUT": (
        "lower transaction.timeout.ms with set_property(), or raise the broker's "
        "transaction.max.timeout.ms"
    ),
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic",
    "POLICY_VIOLATION": "correct the topic's settings",
    "RECORD_LIST_TOO_LARGE": "raise max.message.bytes of the topic",
    "SASL_AUTHENTICATION_FAILED": "correct the user and password",
    "TOPIC_AUTHORIZATION_FAILED": "allow WRITE and DESCRIBE on the topic with an ACL",
    "TOPIC_EXCEPTION": "correct the name of the topic",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "allow WRITE and DESCRIBE on the transactional id with an ACL"
    ),
    "UNKNOWN_TOPIC_OR_PART": "create the topic, with enough partitions",
    "UNSUPPORTED_VERSION": "exactly once needs brokers of Kafka 2.5 or newer",
    "_AUTHENTICATION": "correct the user and password",
    "_INVALID_ARG": "correct the properties of the sink",
    "_SSL": "correct the certificates",
    "_UNKNOWN_PARTITION": "create the topic, with enough partitions",
    "_UNKNOWN_TOPIC": "create the topic",
    "_UNSUPPORTED_FEATURE": "exactly once needs brokers of Kafka 2.5 or newer",
}
"""Errors that a retry does not fix, with the remedy."""


class TransactionalProducer:
    """Publishes transactions of one transactional id; not thread-safe."""

    def __init__(self, properties: KafkaProperties, identity: TransactionalIdentity) -> None:
        self._properties = properties
        self._identity = identity
        self._timeout = max_block_seconds(properties)
        self._kafka = confluent()
        self._producer: Any = None
        self._group: Any = None
        self._lost_connection = False
        self.marker: CommitMarker | None = None
        """What is committed, once open; None if there never was a marker, or it is lost."""

    def open(self) -> None:
        """Fence earlier producers and read the marker; a no-op while nothing has failed.

        A producer that has lost its broker is replaced too: its next transaction would hang until
        it times out.
        """
        if self._producer is not None:
            self._producer.poll(0)
            if not self._lost_connection:
                return
            self.close()
        try:
            self._init_transactions()
            self._lost_connection = False
        except BaseException as error:
            self.close()
            if isinstance(error, self._kafka.KafkaException):
                raise self._translated(error.args[0]) from error
            raise

    def publish(self, blocks: Iterable[tuple[str, list[Message]]], marker: CommitMarker) -> None:
        """Publish messages and move the marker, both or neither; after `open`.

        After an exception the outcome is unknown until `open` is called again: the transaction may
        have been committed before the response was lost.
        """
        producer, sender = self._producer, MessageSender(self._producer)
        try:
            producer.begin_transaction()
            for topic, messages in blocks:
                sender.send(topic, messages)
            # A crash between the sends and the commit leaves an open transaction, which the next
            # producer aborts: neither the records nor the marker become visible.
            self._send_marker(producer, marker)
            self._commit(producer, sender)
        except BaseException as error:
            # Read before the abort, which purges messages: they count as failed too.
            failure, code = sender.failure, sender.failure_code
            self._abort(producer)
            if not isinstance(error, self._kafka.KafkaException | KafkaDeliveryError):
                raise
            if failure is None:
                raise self._translated(error.args[0]) from error
            cause = self._kafka.KafkaError(code, failure.reason)
            raise self._translated(cause, failure) from error
        self.marker = marker

    def close(self) -> None:
        """Discard the producer; an open transaction is not committed."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = self._group = self.marker = None

    def _init_transactions(self) -> None:
        identity = self._identity
        self._producer = open_producer(
            self._properties.with_defaults(_timeouts(self._properties)),
            error_cb=self._on_error,
            transactional_id=identity.transactional_id,
            # Some calls of the client only end with the timeout of their request.
            socket_timeout_ms=int(min(self._timeout, _MAX_REQUEST_SECONDS) * 1000),
        )
        consumer = new_consumer(
            # read_committed waits for the offsets of a transaction that is being completed.
            self._properties,
            group_id=identity.group,
            isolation_level="read_committed",
        )
        try:
            # Also connects: without a connection init_transactions takes half a second longer.
            check_topic(self._producer, identity.topic, self._servers, self._timeout)
            self._producer.init_transactions(self._timeout)
            found = self._committed_offset(consumer)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        self.marker = CommitMarker.parse(found.metadata) if found.offset >= 0 else None

    def _on_error(self, error: Any) -> None:
        lost = (self._kafka.KafkaError._TRANSPORT, self._kafka.KafkaError._ALL_BROKERS_DOWN)
        self._lost_connection |= error.code() in lost

    def _committed_offset(self, consumer: Any) -> Any:
        """Return the group's committed offset, waiting for a coordinator that is loading."""

        def query() -> Any:
            found = consumer.committed([self._partition()], self._timeout)[0]
            if found.error is not None:
                raise self._kafka.KafkaException(found.error)
            return found

        def is_loading(error: Any) -> bool:
            return error.name() in _COORDINATOR_LOADING

        return retry(query, self._timeout, _COORDINATOR_RETRY_SECONDS, is_loading)

    def _send_marker(self, producer: Any, marker: CommitMarker) -> None:
        offsets = [self._partition(marker.offset, marker.text)]
        call_with_timeout(
            self._timeout + _GRACE_SECONDS,
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(offsets, self._group, self._timeout),
        )

    def _commit(self, producer: Any, sender: MessageSender) -> None:
        def is_retriable(error: Any) -> bool:
            sender.check()
            return bool(error.retriable())

        commit = partial(producer.commit_transaction, self._timeout)
        retry(commit, _COMMIT_SECONDS, 0.0, is_retriable)

    def _abort(self, producer: Any) -> None:
        producer.purge()
        with suppress(self._kafka.KafkaException):
            # The next producer aborts it too, but read_committed consumers would wait until then.
            producer.abort_transaction(_ABORT_SECONDS)
        self.close()

    def _translated(
        self, error: Any, undelivered: KafkaDeliveryError | None = None
    ) -> ConnectorError:
        """Translate an error of a broker or of the client into one of penstock's.

        Everything that is not in the tables is transient: a discarded producer has committed all
        or nothing, and the marker shows the next one which.
        """
        name, reason = error.name(), f"{error.name()}: {error.str()}"
        transactional_id = self._identity.transactional_id
        if name in _FENCED:
            return KafkaFencedError(transactional_id, reason)
        what = f"a transaction of {transactional_id!r}"
        if undelivered is not None:
            what, reason = f"a record for topic {undelivered.topic!r}", undelivered.reason
        if name in _REMEDIES:
            return KafkaSinkRefusedError(what, self._servers, reason, _REMEDIES[name])
        return KafkaUnreachableError(what, self._servers, reason)

    def _partition(self, *offset_and_metadata: Any) -> Any:
        return self._kafka.TopicPartition(self._identity.topic, 0, *offset_and_metadata)

    @property
    def _servers(self) -> str:
        return self._properties.get("bootstrap.servers", "")


def _timeouts(properties: KafkaProperties) -> dict[str, int]:
    """Return default timeouts: a message must not outlive its transaction."""
    text = properties.get("transaction.timeout.ms", "").strip()
    timeout = int(text) if text.isdigit() else _TRANSACTION_TIMEOUT_MS
    timeouts = {"transaction.timeout.ms": timeout}
    if "message.timeout.ms" not in properties:
        timeouts["delivery.timeout.ms"] = min(timeout, _DELIVERY_TIMEOUT_MS)
    return timeouts
