"""Source that reads a JetStream stream, and its builder."""
# ruff: noqa: D102 - the contract documents the methods of a source

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.common.serialization import DeserializationSchema, SimpleStringSchema
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.acknowledging.receiver import Receiver, ReceiverContext
from penstock.connectors.acknowledging.source import AcknowledgingSource
from penstock.connectors.contracts.builder_checks import require, require_text
from penstock.connectors.contracts.source import Boundedness
from penstock.connectors.driver_only import DriverOnly
from penstock.connectors.nats.receiver import NatsReceiver
from penstock.connectors.nats.settings import NatsSettings

_DEFAULT_SERVERS = ("nats://127.0.0.1:4222",)
_FORBIDDEN_IN_NAMES = frozenset(">*. /\\\t\r\n")


class NatsSource(AcknowledgingSource):
    """Reads a stream exactly once, through a durable pull consumer."""

    def __init__(self, settings: NatsSettings, deserializer: DeserializationSchema) -> None:
        # Tasks read what the driver has received: the passwords stay on the driver.
        self._settings = DriverOnly(settings)
        self._is_bounded = settings.is_bounded
        self._deserializer = deserializer
        self.max_unacknowledged = settings.max_unacknowledged
        self.fail_on_data_loss = settings.fail_on_data_loss

    @staticmethod
    def builder() -> NatsSourceBuilder:
        """Return a builder; it needs a stream and a durable consumer."""
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
        self._settings = NatsSettings(_DEFAULT_SERVERS, stream="", durable="")
        self._deserializer: DeserializationSchema = SimpleStringSchema()

    def set_servers(self, *servers: str) -> NatsSourceBuilder:
        """Set the servers of the cluster, such as ``nats://host:4222``."""
        require(servers, "set_servers() needs at least one address", ValueError)
        return self._with(
            servers=tuple(require_text("the address of a server", s) for s in servers)
        )

    def set_stream(self, stream: str) -> NatsSourceBuilder:
        """Set the stream, which must exist."""
        return self._with(stream=_name("stream", stream))

    def set_subject(self, subject: str) -> NatsSourceBuilder:
        """Read only messages of a subject (``orders.*``); by default the whole stream."""
        return self._with(subject=require_text("a subject", subject))

    def set_durable(self, durable: str) -> NatsSourceBuilder:
        """Set the durable consumer, which is created if it does not exist.

        It belongs to one job: the messages would be distributed over two jobs that share it.
        """
        return self._with(durable=_name("durable consumer", durable))

    def set_deserializer(self, deserializer: DeserializationSchema) -> NatsSourceBuilder:
        """Set how messages become records; by default strings in UTF-8."""
        self._deserializer = deserializer
        return self

    def set_ack_wait(self, ack_wait: Duration) -> NatsSourceBuilder:
        """Set after how long the server redelivers an unacknowledged message; by default 5 min.

        A running driver extends it, however long a checkpoint takes, and a new attempt does not
        wait for it: it requests what the previous one had in flight. A consumer that the source did
        not create keeps its own setting, and there a new attempt does wait.
        """
        message = (
            f"set_ack_wait() takes a Duration, such as Duration.of_minutes(5); got {ack_wait!r}"
        )
        require(isinstance(ack_wait, Duration), message, TypeError)
        seconds = ack_wait.nanos / 1e9
        message = f"set_ack_wait() takes a positive Duration; got {ack_wait!r}"
        require(seconds > 0, message, ValueError)
        return self._with(ack_wait=seconds)

    def set_max_unacknowledged(self, records: int) -> NatsSourceBuilder:
        """Set how many records may wait for their checkpoint; one million by default."""
        message = f"set_max_unacknowledged() takes a number of records; got {records!r}"
        require(isinstance(records, int) and not isinstance(records, bool), message, TypeError)
        message = f"set_max_unacknowledged() takes at least 1; got {records}"
        require(records >= 1, message, ValueError)
        return self._with(max_unacknowledged=records)

    def set_bounded(self) -> NatsSourceBuilder:
        """End after the last message in the stream when the job first starts."""
        return self._with(is_bounded=True)

    def set_fail_on_data_loss(self, fails: bool) -> NatsSourceBuilder:
        """Set whether to reject a snapshot older than what was acknowledged; by default True."""
        return self._with(fail_on_data_loss=fails)

    def set_property(self, name: str, value: Any) -> NatsSourceBuilder:
        """Set an argument of ``nats.connect``, such as ``user``, ``password`` or ``token``."""
        return self.set_properties({name: value})

    def set_properties(self, properties: dict[str, Any]) -> NatsSourceBuilder:
        """Set arguments of ``nats.connect``."""
        return self._with(options={**self._settings.options, **properties})

    def build(self) -> NatsSource:
        """Build the source."""
        message = "a NATS source needs set_stream() and set_durable()"
        require(self._settings.stream and self._settings.durable, message, ValueError)
        return NatsSource(self._settings, self._deserializer)

    def _with(self, **changes: Any) -> NatsSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self


def _name(kind: str, name: str) -> str:
    require_text(f"the name of a {kind}", name)
    if not name or _FORBIDDEN_IN_NAMES & set(name):
        shape = "must not be empty or contain dots, stars, slashes or spaces"
        message = f"the name of a {kind} {shape}; got {name!r}"
        raise ValueError(message)
    return name
