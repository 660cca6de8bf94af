"""Errors of reading from Kafka."""

from collections.abc import Sequence

from penstock.errors.base import show
from penstock.errors.connectors import ConnectorError


class KafkaUnavailableError(ConnectorError):
    """No broker answered in time."""

    def __init__(self, bootstrap_servers: str, seconds: float, reason: str) -> None:
        super().__init__(bootstrap_servers, seconds, reason)
        self.bootstrap_servers = bootstrap_servers
        self.seconds = seconds
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"no Kafka broker answered at {self.bootstrap_servers} within {self.seconds:g} s: "
            f"{self.reason}; start it, correct the bootstrap servers, or raise the property "
            "default.api.timeout.ms"
        )


class MissingTopicError(ConnectorError):
    """Topics or partitions to read from do not exist."""

    def __init__(self, missing: Sequence[str], bootstrap_servers: str) -> None:
        super().__init__(missing, bootstrap_servers)
        self.missing = missing
        self.bootstrap_servers = bootstrap_servers

    def __str__(self) -> str:
        return (
            f"Kafka at {self.bootstrap_servers} has no {', '.join(self.missing)}; create it, or "
            "use set_topic_pattern() for topics that come later"
        )


class MissingOffsetsError(ConnectorError):
    """A source shall begin at committed offsets, and its group has committed none."""

    def __init__(self, group: str, partitions: Sequence[str]) -> None:
        super().__init__(group, partitions)
        self.group = group
        self.partitions = partitions

    def __str__(self) -> str:
        return (
            f"group {self.group!r} has no committed offsets of {', '.join(self.partitions)}; "
            "give the initializer a KafkaOffsetResetStrategy, EARLIEST or LATEST"
        )


class LostRecordsError(ConnectorError):
    """Kafka no longer has, or never had, the records a source goes on with."""

    def __init__(self, topic: str, partition: int, position: int, first: int, end: int) -> None:
        super().__init__(topic, partition, position, first, end)
        self.topic = topic
        self.partition = partition
        self.position = position
        self.first = first
        self.end = end

    def __str__(self) -> str:
        where = f"topic {self.topic!r}, partition {self.partition}"
        if self.position < self.first:
            what = f"{self.first - self.position} offsets are no longer retained"
        elif self.position <= self.end:
            what = "the topic was deleted and made anew, and these are other records"
        else:
            what = "the topic was made anew or lost its end"
        return (
            f"{where}: the job goes on at offset {self.position}, and Kafka has {self.first} to "
            f"{self.end}: {what}; restore another checkpoint, or go on without these records with "
            "set_property('penstock.kafka.on-lost-records', 'skip')"
        )


class UndecodableRecordError(ConnectorError):
    """A record's bytes are not what the deserializer expects."""

    def __init__(
        self, topic: str, partition: int | None, offset: int | None, message: object, reason: str
    ) -> None:
        message = show(message)
        super().__init__(topic, partition, offset, message, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        where = f"topic {self.topic!r}"
        if self.offset is not None:
            where += f", partition {self.partition}, offset {self.offset}"
        return (
            f"{where}: cannot decode {self.message}: {self.reason}; correct the deserializer, or "
            "have it ignore parse errors"
        )
