"""Source of the messages in a JetStream stream."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from typing import Any

from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.acknowledging import AcknowledgingSource
from penstock.connectors.kept_home import KeptHome
from penstock.connectors.nats.receiver import NatsReceiver
from penstock.connectors.nats.settings import NatsSettings
from penstock.connectors.receiver import Receiver, ReceiverContext
from penstock.connectors.source import Boundedness

__all__ = ["NatsSource", "NatsSourceBuilder"]

_DEFAULT_SERVERS = ("nats://127.0.0.1:4222",)
_FORBIDDEN_IN_NAMES = frozenset(">*. /\\\t\r\n")


class NatsSource(AcknowledgingSource):
    """The messages of a stream, each exactly once, through a durable pull consumer."""

    def __init__(
        self,
        settings: NatsSettings,
        deserializer: DeserializationSchema,
        *,
        max_unacknowledged: int = AcknowledgingSource.max_unacknowledged,
        fail_on_data_loss: bool = True,
    ) -> None:
        # Tasks read what the driver has received, and need no password for it.
        self._settings = KeptHome(settings)
        self._is_bounded = settings.is_bounded
        self._deserializer = deserializer
        self.max_unacknowledged = max_unacknowledged
        self.fail_on_data_loss = fail_on_data_loss

    @staticmethod
    def builder() -> NatsSourceBuilder:
        """Begin a source."""
        return NatsSourceBuilder()

    def boundedness(self) -> Boundedness:
        if self._is_bounded:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    def type_info(self) -> TypeInformation | None:
        return self._deserializer.get_produced_type()

    def receiver(self, context: ReceiverContext) -> Receiver:
        return NatsReceiver(self._settings.get(), context)

    def deserialize(self, payload: bytes) -> Any:
        return self._deserializer.deserialize(payload)


class NatsSourceBuilder:
    """Builds a :class:`NatsSource`."""

    def __init__(self) -> None:
        self._servers: tuple[str, ...] = _DEFAULT_SERVERS
        self._stream: str | None = None
        self._durable: str | None = None
        self._subject: str | None = None
        self._deserializer: DeserializationSchema = SimpleStringSchema()
        self._ack_wait = 300.0
        self._max_unacknowledged = AcknowledgingSource.max_unacknowledged
        self._is_bounded = False
        self._fail_on_data_loss = True
        self._options: dict[str, Any] = {}

    def set_servers(self, *servers: str) -> NatsSourceBuilder:
        """Name the servers of the cluster, such as ``nats://host:4222``; any one that answers."""
        if not servers:
            message = "set_servers() needs at least one address"
            raise ValueError(message)
        self._servers = tuple(_text("the address of a server", server) for server in servers)
        return self

    def set_stream(self, stream: str) -> NatsSourceBuilder:
        """Name the stream, which must exist."""
        self._stream = _name("stream", stream)
        return self

    def set_subject(self, subject: str) -> NatsSourceBuilder:
        """Take only messages of these subjects (``orders.*``); by default all of the stream."""
        self._subject = _text("a subject", subject)
        return self

    def set_durable(self, durable: str) -> NatsSourceBuilder:
        """Name the durable consumer, which is created if it does not exist.

        It belongs to one job: two jobs with the same one would share out its messages.
        """
        self._durable = _name("durable consumer", durable)
        return self

    def set_deserializer(self, deserializer: DeserializationSchema) -> NatsSourceBuilder:
        """Say how messages become records; by default as text in UTF-8."""
        self._deserializer = deserializer
        return self

    def set_ack_wait(self, ack_wait: Duration) -> NatsSourceBuilder:
        """Set after how long the server delivers again what nobody speaks of; 5 min by default.

        While a driver lives it asks for more time, however long a checkpoint takes, and a new
        attempt does not wait for it: it asks for what the one before had in flight. A consumer that
        the source did not create keeps its own setting, and there a new attempt does wait.
        """
        if not isinstance(ack_wait, Duration):
            message = f"an ack wait is a Duration, such as Duration.of_minutes(5); got {ack_wait!r}"
            raise TypeError(message)
        seconds = ack_wait.nanos / 1e9
        if seconds <= 0:
            message = f"an ack wait must be positive; got {ack_wait!r}"
            raise ValueError(message)
        self._ack_wait = seconds
        return self

    def set_max_unacknowledged(self, records: int) -> NatsSourceBuilder:
        """Set how many records may wait for their checkpoint; one million by default."""
        if not isinstance(records, int) or isinstance(records, bool):
            message = f"set_max_unacknowledged() takes a number of records; got {records!r}"
            raise TypeError(message)
        if records < 1:
            message = f"at least one record must be allowed to wait; got {records}"
            raise ValueError(message)
        self._max_unacknowledged = records
        return self

    def set_bounded(self) -> NatsSourceBuilder:
        """End behind what is in the stream when the job first starts."""
        self._is_bounded = True
        return self

    def set_fail_on_data_loss(self, fails: bool) -> NatsSourceBuilder:
        """Say whether to refuse a snapshot older than what was acknowledged; yes by default."""
        self._fail_on_data_loss = fails
        return self

    def set_property(self, name: str, value: Any) -> NatsSourceBuilder:
        """Give an argument of ``nats.connect``, such as ``user``, ``password`` or ``token``."""
        self._options[name] = value
        return self

    def set_properties(self, properties: dict[str, Any]) -> NatsSourceBuilder:
        """Give other arguments of ``nats.connect``."""
        self._options |= properties
        return self

    def build(self) -> NatsSource:
        """Make the source."""
        if self._stream is None or self._durable is None:
            message = "a NATS source needs set_stream() and set_durable()"
            raise ValueError(message)
        settings = NatsSettings(
            tuple(self._servers),
            self._stream,
            self._durable,
            self._subject,
            self._ack_wait,
            self._is_bounded,
            dict(self._options),
        )
        return NatsSource(
            settings,
            self._deserializer,
            max_unacknowledged=self._max_unacknowledged,
            fail_on_data_loss=self._fail_on_data_loss,
        )


def _text(what: str, given: Any) -> str:
    if not isinstance(given, str):
        message = f"{what} is a text; got {given!r}"
        raise TypeError(message)
    return given


def _name(kind: str, name: str) -> str:
    _text(f"the name of a {kind}", name)
    if not name or _FORBIDDEN_IN_NAMES & set(name):
        message = f"the name of a {kind} has no dots, stars, slashes or spaces; got {name!r}"
        raise ValueError(message)
    return name
