"""Hides credentials in texts that are logged, stored or shown.

A credential is recognised by the name in front of it (`password=…`, `--token …`, `"secret": "…"`),
or as the password in a URL. A secret in any other form is not recognised.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

HIDDEN = "***"

# Flink's list of sensitive keys, and the names that Kafka, PostgreSQL, NATS and Spark use.
_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credential|jaas|oauthbearer|authorization"
    r"|auth[._-]?params|basic[._-]?auth|http[._-]?headers|nkeys?[._-]seed"
    r"|(?:api|access|private|account|service|shared|signing|ssl|keystore|sas|customer)[._-]?key)"
)
_SENSITIVE = re.compile(_NAMES, re.IGNORECASE)
_VALUE = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&'"()\[\]{}]+"""
# Bounded repetitions only: the texts are arbitrary, and may be megabytes long.
_ASSIGNED = re.compile(
    rf"""({_NAMES}[\w.-]{{0,64}})(["']?[ ]{{0,4}}=(?!=)[ ]{{0,4}}|["'][ ]{{0,4}}:[ ]{{0,4}})"""
    rf"""({_VALUE})""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^\s:/@]{0,256}:([^\s/]{1,1024})@")
_BEARER = re.compile(r"\b(?:bearer|basic)\s+([A-Za-z0-9+/=._~-]{8,})", re.IGNORECASE)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")


def is_sensitive(name: str) -> bool:
    """Whether the value of a key, option or argument of this name must not be shown."""
    return _SENSITIVE.search(name) is not None


def redact(text: str) -> str:
    """Return a text without the credentials that can be recognised in it."""
    at, shown = 0, []
    for begin, end in credentials_in(text):
        shown += [text[at:begin], HIDDEN]
        at = end
    return "".join([*shown, text[at:]])


def credentials_in(text: str, known: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Return where credentials are: those that can be recognised, and those that are `known`.

    The ranges are in order and have something between them.
    """
    found = [match.span(1) for match in _IN_URL.finditer(text)]
    found += [_inside_quotes(match) for match in _ASSIGNED.finditer(text)]
    found += [match.span(1) for match in _BEARER.finditer(text)]
    for secret in filter(None, known):
        found += [match.span() for match in re.finditer(re.escape(secret), text)]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def redact_value(value: Any, name: str = "") -> Any:
    """Return plain data without credentials: a value by its name, a text by its content."""
    if isinstance(value, dict):
        return {key: redact_value(item, str(key)) for key, item in value.items()}
    if is_sensitive(name):
        return HIDDEN
    if isinstance(value, list | tuple):
        return type(value)(redact_value(item) for item in value)
    return redact(value) if isinstance(value, str) else value


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments without credentials: also `--password VALUE`."""
    shown: list[str] = []
    hides_next = False
    for argument in arguments:
        option = _OPTION.fullmatch(argument)
        shown.append(HIDDEN if hides_next and option is None else redact(argument))
        hides_next = option is not None and is_sensitive(option[1])
    return shown


def _inside_quotes(assigned: re.Match[str]) -> tuple[int, int]:
    begin, end = assigned.span(3)
    return (begin + 1, end - 1) if assigned[3][0] in "\"'" else (begin, end)


class RedactingFilter(logging.Filter):
    """Hides credentials in the messages and tracebacks of a logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message if it contains a credential."""
        try:
            message = record.getMessage()
        except Exception as error:
            # A value without a text must not make the caller fail.
            record.msg = f"{record.msg} (a value raises {type(error).__name__})"
            record.args, message = (), record.msg
        if (shown := redact(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True


_LOGGERS = (
    "penstock",
    "penstock.checkpoint",
    "penstock.common.config.known_options",
    "penstock.connectors",
    "penstock.connectors.acknowledging.receiver_loop",
    "penstock.connectors.acknowledging.source",
    "penstock.connectors.files.enumerator",
    "penstock.connectors.files.finished_files",
    "penstock.connectors.kafka",
    "penstock.connectors.kafka.client",
    "penstock.connectors.kafka.source.broker_client",
    "penstock.connectors.kafka.source.enumerator",
    "penstock.connectors.kafka.source.partition_monitor",
    "penstock.connectors.nats.connection",
    "penstock.connectors.nats.receiver",
    "penstock.connectors.postgres",
    "penstock.connectors.socket.ingestion_log",
    "penstock.connectors.socket.source",
    "penstock.datastream",
    "penstock.job",
    "penstock.recovery",
    "penstock.serve",
    "penstock.snapshots",
    "penstock.storage",
    "penstock.spark",
    "penstock.state",
)
"""All of penstock's loggers: a filter is not inherited."""


def redact_logs() -> None:
    """Hide credentials in everything that penstock logs."""
    hiding = RedactingFilter()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(hiding)
