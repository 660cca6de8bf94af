"""A connection that does not wait for ever for a server that hangs."""

from __future__ import annotations

import logging
import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

__all__ = ["AnsweringConnection"]

logger = logging.getLogger("penstock.connectors.postgres")

T = TypeVar("T")


class AnsweringConnection(psycopg.Connection[Any]):
    """Gives up when the server neither sends nor takes anything for too long.

    A server that hangs, or one behind a proxy whose host is gone, keeps its connections open, and
    the kernel goes on to answer keepalives for it. The connection is closed then, as if it had
    broken: what it was at may have happened, or may still happen.
    """

    server = "PostgreSQL"
    patience = 120.0
    """Seconds of silence; a COPY that goes on is never silent."""
    _given_up: psycopg.OperationalError | None = None

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Let the server do something, as psycopg does everything."""
        if self._given_up is not None:
            # Whoever ends a COPY or a transaction because of it.
            raise self._given_up
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: PQGen[T]) -> PQGen[T]:
        """Pass on what psycopg's waiting sends: several times a second, whether ready or not."""
        heard, has_warned = time.monotonic(), False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = now
                elif now - heard > self.patience:
                    self._give_up()
                elif now - heard > self.patience / 2 and not has_warned:
                    has_warned = True
                    logger.warning(
                        "%s has been silent for %.0f s; the connection is given up after %g s",
                        self.server,
                        now - heard,
                        self.patience,
                    )
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _give_up(self) -> None:
        self.close()
        message = f"the server was silent for {self.patience:g} s, and the connection was given up"
        self._given_up = psycopg.OperationalError(message)
        raise self._given_up
