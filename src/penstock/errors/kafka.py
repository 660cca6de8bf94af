"""Errors of reading from Kafka and of writing to it."""

from collections.abc import Sequence

from penstock.errors.connectors import BadDataError, ConnectorError


class KafkaUnavailableError(ConnectorError):
    """No broker answered a source before its timeout."""

    bootstrap_servers: str
    seconds: float
    reason: str
    template = (
        "no Kafka broker answered at {bootstrap_servers} within {seconds:g} s: {reason}; start it, "
        "correct the bootstrap servers, or raise the property default.api.timeout.ms"
    )


class MissingTopicError(ConnectorError):
    """Topics or partitions to read from do not exist."""

    missing: Sequence[str]
    bootstrap_servers: str
    template = (
        "Kafka at {bootstrap_servers} has no {missing}; create it, or use set_topic_pattern() for "
        "topics that are created later"
    )


class MissingOffsetsError(ConnectorError):
    """A source should start at committed offsets, but its group has committed none."""

    group: str
    partitions: Sequence[str]
    template = (
        "group {group!r} has no committed offsets of {partitions}; give the initializer a "
        "KafkaOffsetResetStrategy, EARLIEST or LATEST"
    )


class LostRecordsError(ConnectorError):
    """Kafka no longer has, or never had, the records at which a source resumes."""

    topic: str
    partition: int
    position: int
    first: int
    end: int

    def __str__(self) -> str:
        if self.position < self.first:
            what = f"{self.first - self.position} offsets are no longer retained"
        elif self.position <= self.end:
            what = "the topic was deleted and created again, and these are other records"
        else:
            what = "the topic was created again or lost its end"
        return (
            f"topic {self.topic!r}, partition {self.partition}: the job resumes at offset "
            f"{self.position}, and Kafka has {self.first} to {self.end}: {what}; restore another "
            "checkpoint, or continue without these records with "
            "set_property('penstock.kafka.on-lost-records', 'skip')"
        )


class UndecodableRecordError(BadDataError):
    """The deserializer of a source cannot decode a record."""

    topic: str
    partition: int | None
    offset: int | None
    message: object
    reason: str

    def __str__(self) -> str:
        where = f"topic {self.topic!r}"
        if self.offset is not None:
            where += f", partition {self.partition}, offset {self.offset}"
        return (
            f"{where}: cannot decode {self.message}: {self.reason}; correct the deserializer, or "
            "have it ignore parse errors"
        )


class KafkaRecordError(BadDataError):
    """A part of a record cannot be sent to Kafka."""

    part: str
    data: object
    reason: str
    template = "the {part} of a Kafka record cannot be sent: {reason}; got {data}"


class KafkaDeliveryError(ConnectorError):
    """A broker did not accept a record."""

    topic: str
    key: bytes | None
    reason: str

    def __str__(self) -> str:
        which = "a record" if self.key is None else f"the record with key {self.key[:200]!r}"
        return f"topic {self.topic!r} did not accept {which}: {self.reason}"


class KafkaSinkRefusedError(ConnectorError):
    """The brokers refuse what a sink needs; retrying would not help."""

    what: str
    servers: str
    reason: str
    advice: str
    template = "Kafka at {servers} refuses {what}: {reason}; {advice}"


class KafkaUnreachableError(ConnectorError):
    """No broker answered a sink before its timeout."""

    what: str
    servers: str
    reason: str
    template = (
        "no answer from Kafka at {servers} to {what}: {reason}; start the brokers, or correct the "
        "bootstrap servers"
    )


class KafkaFencedError(ConnectorError):
    """Another producer has taken over a sink's transactional id."""

    transactional_id: str
    reason: str
    template = (
        "another producer has taken over the transactional id {transactional_id!r} ({reason}): a "
        "later attempt of this job, a job that restored a savepoint of it, or another job of that "
        "name with the same prefix; give every job its own prefix with "
        "set_transactional_id_prefix()"
    )


class LostKafkaMarkerError(ConnectorError):
    """It can no longer be determined whether staged records were written to their topic."""

    group: str
    topic: str
    checkpoint: int
    records: int
    template = (
        "only the offset of consumer group {group!r} on partition 0 of topic {topic!r} shows "
        "whether {records} records of checkpoint {checkpoint} are in Kafka, and that offset is "
        "gone (offsets.retention.minutes may have passed since the job last ran, or the group was "
        "deleted); look into the topic, restore with "
        "set_property('penstock.kafka.on-lost-marker', 'skip') if the records are there, or "
        "'publish' if they are not"
    )


class IncompleteKafkaCheckpointError(ConnectorError):
    """Only some of the records that a checkpoint staged for Kafka are there to be committed."""

    checkpoint: int
    missing: int
    parts: int
    template = (
        "{missing} of {parts} parts of checkpoint {checkpoint} are missing; publishing the others "
        "would mark all of them as published: restore an intact checkpoint"
    )


class CorruptStagedRecordsError(ConnectorError):
    """Records that are staged for publication are damaged."""

    place: str
    reason: str
    template = "staged records in {place} are damaged: {reason}; put back a good copy"
