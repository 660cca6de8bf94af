"""Finds a loopback port that stays free while its server is down."""

from __future__ import annotations

import random
import socket

from penstock.errors import ServerError

LOOPBACK = "127.0.0.1"
# Below the ephemeral ports of the kernel: an outgoing connection could otherwise occupy the port
# of a killed server when it is started again.
_FIRST, _LAST = 20000, 32000
_TRIES = 200


def free_port() -> int:
    """Return a port on which no process listens, to be bound soon."""
    for _ in range(_TRIES):
        port = random.SystemRandom().randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    message = f"no free port between {_FIRST} and {_LAST}"
    raise ServerError(message)
