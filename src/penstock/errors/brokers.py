"""Errors of sources whose broker wants acknowledgements."""

from penstock.errors.base import show
from penstock.errors.connectors import ConnectorError


class AcknowledgedRecordsError(ConnectorError):
    """A job would go back behind records that its broker was told to forget."""

    def __init__(self, restored: str, acknowledged: str) -> None:
        super().__init__(restored, acknowledged)
        self.restored = restored
        self.acknowledged = acknowledged

    def __str__(self) -> str:
        return (
            f"the job is restored at {self.restored}, and everything before {self.acknowledged} "
            "was acknowledged: the broker will not deliver what lies between again; restore the "
            "newest checkpoint, or go on without those records with fail_on_data_loss = False"
        )


class LostReceivedRecordsError(ConnectorError):
    """What a broker delivered cannot be read any more."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"received records {self.path} cannot be read: {self.reason}; nothing of it was "
            "acknowledged: restore the checkpoint, and the broker delivers it again"
        )


class NatsConnectionError(ConnectorError):
    """There is no connection to any NATS server."""

    def __init__(self, servers: str, reason: str) -> None:
        super().__init__(servers, reason)
        self.servers = servers
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to NATS at {self.servers}: {self.reason}"


class MissingStreamError(ConnectorError):
    """A JetStream stream does not exist."""

    def __init__(self, stream: str, servers: str) -> None:
        super().__init__(stream, servers)
        self.stream = stream
        self.servers = servers

    def __str__(self) -> str:
        return (
            f"there is no JetStream stream {self.stream!r} at {self.servers}: create it, "
            "penstock does not"
        )


class OtherStreamError(ConnectorError):
    """A JetStream stream is not the one the job has read: its numbers mean other messages."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(stream, reason)
        self.stream = stream
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"JetStream stream {self.stream!r} is not what the job has read so far: {self.reason}; "
            "sequence numbers would be taken for messages that were seen: give the source another "
            "uid to read the stream as a new one"
        )


class UnfitConsumerError(ConnectorError):
    """A durable consumer that is there already would lose or delay messages."""

    def __init__(self, stream: str, consumer: str, reason: str) -> None:
        super().__init__(stream, consumer, reason)
        self.stream = stream
        self.consumer = consumer
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"consumer {self.consumer!r} of stream {self.stream!r} cannot be used: {self.reason}; "
            "name another one with set_durable(), or delete it and let the source create it"
        )


class UndecodableMessageError(ConnectorError):
    """A message's bytes are not what the source expects."""

    def __init__(self, message: object, reason: str) -> None:
        message = show(message)
        super().__init__(message, reason)
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot decode message {self.message}: {self.reason}; correct the deserializer, or "
            "let it return None to leave the message out"
        )
