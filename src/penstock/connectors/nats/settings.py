"""Settings of a NATS source, and checks of an existing durable consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.acknowledging.source import AcknowledgingSource

if TYPE_CHECKING:
    from nats.js.api import ConsumerConfig

OWN_CONSUMER = "made by penstock"
"""The description of consumers that the source may reconfigure."""

ALL_SUBJECTS = ">"


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """The settings of a source; the repr hides secrets."""

    servers: tuple[str, ...] = field(repr=False)
    """May contain users and passwords."""
    stream: str
    durable: str
    subject: str | None = None
    ack_wait: float = 300.0
    is_bounded: bool = False
    max_unacknowledged: int = AcknowledgingSource.max_unacknowledged
    fail_on_data_loss: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments of ``nats.connect``."""

    @property
    def shown_servers(self) -> str:
        """The addresses of the servers without users and passwords."""
        return ", ".join(
            f"{scheme}{mark}{rest.rpartition('@')[2]}"
            for scheme, mark, rest in (server.rpartition("://") for server in self.servers)
        )


def consumer_fault(config: ConsumerConfig, settings: NatsSettings) -> str | None:
    """Return why an existing durable consumer cannot be used; None if it can."""
    if config.deliver_subject:
        return f"it is a push consumer (to {config.deliver_subject!r}); a pull consumer is needed"
    # A plain string when it comes from the server; the enum is a string too.
    if config.ack_policy != "explicit":
        return f"its ack policy is {str(config.ack_policy)!r}, not 'explicit'"
    if config.max_deliver is not None and config.max_deliver > 0:
        return f"it drops a message after {config.max_deliver} deliveries (max_deliver)"
    subjects = config.filter_subjects or [config.filter_subject or ALL_SUBJECTS]
    if subjects != [settings.subject or ALL_SUBJECTS]:
        return f"it filters {', '.join(subjects)}, not {settings.subject or ALL_SUBJECTS}"
    return None


def sequence_of(reply: str) -> int:
    """Return the stream sequence of a message from its acknowledgement subject."""
    tokens = reply.split(".")
    # With a domain and an account hash there are two more tokens before the stream name.
    return int(tokens[5] if len(tokens) == 9 else tokens[7])
