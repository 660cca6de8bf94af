"""Errors of sources whose broker expects acknowledgements."""

from penstock.errors.connectors import BadDataError, ConnectorError


class AcknowledgedRecordsError(ConnectorError):
    """The restored position lies before records that were already acknowledged to the broker."""

    restored: str
    acknowledged: str
    template = (
        "the job is restored at {restored}, but everything before {acknowledged} was acknowledged: "
        "the broker will not deliver the records in between again; restore the newest checkpoint, "
        "or continue without those records with fail_on_data_loss = False"
    )


class LostReceivedRecordsError(ConnectorError):
    """Records that a broker delivered can no longer be read."""

    path: str
    reason: str
    template = (
        "received records {path} cannot be read: {reason}; none of them was acknowledged: restore "
        "the checkpoint, and the broker delivers them again"
    )


class NatsConnectionError(ConnectorError):
    """No NATS server can be reached."""

    servers: str
    reason: str
    template = (
        "no connection to NATS at {servers}: {reason}; start the server, or correct the address"
    )


class MissingStreamError(ConnectorError):
    """A JetStream stream does not exist."""

    stream: str
    servers: str
    template = (
        "there is no JetStream stream {stream!r} at {servers}: create it, penstock does not create "
        "streams"
    )


class DifferentStreamError(ConnectorError):
    """A JetStream stream is not the one the job has read: its numbers mean other messages."""

    stream: str
    reason: str
    template = (
        "JetStream stream {stream!r} is not the stream that the job has read so far: {reason}; new "
        "messages would be mistaken for ones already read, because they have the same sequence "
        "numbers: give the source another uid to read the stream as a new one"
    )


class UnsuitableConsumerError(ConnectorError):
    """An existing durable consumer has settings that would lose or delay messages."""

    stream: str
    consumer: str
    reason: str
    template = (
        "consumer {consumer!r} of stream {stream!r} cannot be used: {reason}; choose another name "
        "with set_durable(), or delete the consumer and let the source create it"
    )


class UndecodableMessageError(BadDataError):
    """The deserializer of a source cannot decode a message."""

    message: object
    reason: str
    template = (
        "cannot decode message {message}: {reason}; correct the deserializer, or let it return "
        "None to skip the message"
    )
