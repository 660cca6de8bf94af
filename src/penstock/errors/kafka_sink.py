"""Errors of sinks that write to Kafka."""

from typing import Any

from penstock.errors.connectors import ConnectorError


class KafkaRecordError(ConnectorError):
    """A part of a record cannot be sent to Kafka."""

    def __init__(self, part: str, data: Any, reason: str) -> None:
        super().__init__(part, data, reason)
        self.part = part
        self.data = data
        self.reason = reason

    def __str__(self) -> str:
        shown = repr(self.data)
        if len(shown) > 200:
            shown = f"{shown[:200]}…"
        return f"the {self.part} of a Kafka record cannot be sent: {self.reason}; got {shown}"


class KafkaDeliveryError(ConnectorError):
    """A broker did not take a record."""

    def __init__(self, topic: str, key: bytes | None, reason: str) -> None:
        super().__init__(topic, key, reason)
        self.topic = topic
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        which = "a record" if self.key is None else f"the record with key {self.key[:200]!r}"
        return f"topic {self.topic!r} did not take {which}: {self.reason}"


class KafkaSinkRefusedError(ConnectorError):
    """The brokers refuse what a sink needs; asking again would not help."""

    def __init__(self, what: str, servers: str, reason: str, advice: str) -> None:
        super().__init__(what, servers, reason, advice)
        self.what = what
        self.servers = servers
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        return f"Kafka at {self.servers} refuses {self.what}: {self.reason}; {self.advice}"


class KafkaUnreachableError(ConnectorError):
    """No broker answers a sink in time."""

    def __init__(self, what: str, servers: str, reason: str) -> None:
        super().__init__(what, servers, reason)
        self.what = what
        self.servers = servers
        self.reason = reason

    def __str__(self) -> str:
        return f"no answer from Kafka at {self.servers} to {self.what}: {self.reason}"


class KafkaFencedError(ConnectorError):
    """Another producer has taken over a sink's transactional id."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(transactional_id, reason)
        self.transactional_id = transactional_id
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"another producer has taken over the transactional id {self.transactional_id!r} "
            f"({self.reason}): a later attempt of this job, a job that restored a savepoint of "
            "it, or another job of that name with the same prefix; give every job a prefix of "
            "its own with set_transactional_id_prefix()"
        )


class LostKafkaMarkerError(ConnectorError):
    """Nobody can tell any more whether staged records are in their topic."""

    def __init__(self, group: str, topic: str, checkpoint: int, records: int) -> None:
        super().__init__(group, topic, checkpoint, records)
        self.group = group
        self.topic = topic
        self.checkpoint = checkpoint
        self.records = records

    def __str__(self) -> str:
        return (
            f"only the offset of consumer group {self.group!r} on partition 0 of topic "
            f"{self.topic!r} tells whether {self.records} records of checkpoint {self.checkpoint} "
            "are in Kafka, and it does not any more (offsets.retention.minutes may have passed "
            "since the job ran last, or the group was deleted); look into the topic, restore with "
            "set_property('penstock.kafka.on-lost-marker', 'skip') if they are there, or "
            "'publish' if they are not"
        )


class IncompleteKafkaCutError(ConnectorError):
    """Of what a checkpoint staged for Kafka, only a part was asked to be committed."""

    def __init__(self, checkpoint: int, missing: int, parts: int) -> None:
        super().__init__(checkpoint, missing, parts)
        self.checkpoint = checkpoint
        self.missing = missing
        self.parts = parts

    def __str__(self) -> str:
        return (
            f"{self.missing} of {self.parts} parts of checkpoint {self.checkpoint} are missing; "
            "publishing the others would make them look published: restore an intact checkpoint"
        )


class CorruptStagedRecordsError(ConnectorError):
    """Records that wait to be published are damaged."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"staged records in {self.place} are damaged: {self.reason}; put back a good copy"
