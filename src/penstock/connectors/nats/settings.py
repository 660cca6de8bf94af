"""What a user says of a stream, and what a durable consumer must be like for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nats.js.api import ConsumerConfig

__all__ = ["ALL_SUBJECTS", "OWN_CONSUMER", "NatsSettings", "consumer_fault", "sequence_of"]

OWN_CONSUMER = "made by penstock"
"""Describes consumers that the source may change to its settings."""

ALL_SUBJECTS = ">"


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Where messages come from; secrets are left out of its repr."""

    servers: tuple[str, ...]
    stream: str
    durable: str
    subject: str | None = None
    ack_wait: float = 300.0
    is_bounded: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments of ``nats.connect``."""

    @property
    def shown_servers(self) -> str:
        """The servers' addresses without users and passwords."""
        return ", ".join(
            f"{scheme}{mark}{rest.rpartition('@')[2]}"
            for scheme, mark, rest in (server.rpartition("://") for server in self.servers)
        )


def consumer_fault(config: ConsumerConfig, settings: NatsSettings) -> str | None:
    """Say why a durable consumer that is there already cannot be used; None if it can."""
    if config.deliver_subject:
        return f"it pushes messages to {config.deliver_subject!r}, and only pulling can wait"
    # A text when it comes from the server; the enum is one, too.
    if config.ack_policy != "explicit":
        return f"its ack policy is {str(config.ack_policy)!r}, not 'explicit'"
    if config.max_deliver is not None and config.max_deliver > 0:
        return f"it gives up a message after {config.max_deliver} deliveries (max_deliver)"
    subjects = config.filter_subjects or [config.filter_subject or ALL_SUBJECTS]
    if subjects != [settings.subject or ALL_SUBJECTS]:
        return f"it is for {', '.join(subjects)} and not for {settings.subject or ALL_SUBJECTS}"
    return None


def sequence_of(reply: str) -> int:
    """Return the stream's number of a message from the subject it is acknowledged by."""
    tokens = reply.split(".")
    # With a domain and an account there are two more before the stream's name.
    return int(tokens[5] if len(tokens) == 9 else tokens[7])
