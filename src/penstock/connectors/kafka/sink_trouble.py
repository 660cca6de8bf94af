"""What a broker's error means for a sink: wait, give up, or someone else has taken over."""

from __future__ import annotations

from typing import Any

from penstock.connectors.kafka.staged_part import Account
from penstock.errors import (
    ConnectorError,
    KafkaDeliveryError,
    KafkaFencedError,
    KafkaSinkRefusedError,
    KafkaUnreachableError,
)

__all__ = ["told_by"]

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})

_ADVICE = {
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
"""What asking again will not change, and what will."""


def told_by(
    error: Any, account: Account, servers: str, undelivered: KafkaDeliveryError | None = None
) -> ConnectorError:
    """Turn a broker's or the client's own error into one of ours.

    Everything else may pass by itself: a producer that is thrown away has published all or
    nothing, and the marker tells the next one which.
    """
    name, reason = error.name(), f"{error.name()}: {error.str()}"
    if name in _FENCED:
        return KafkaFencedError(account.transactional_id, reason)
    what = f"a transaction of {account.transactional_id!r}"
    if undelivered is not None:
        what, reason = f"a record for topic {undelivered.topic!r}", undelivered.reason
    if name in _ADVICE:
        return KafkaSinkRefusedError(what, servers, reason, _ADVICE[name])
    return KafkaUnreachableError(what, servers, reason)
