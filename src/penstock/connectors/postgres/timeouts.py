"""A psycopg connection that times out if the server stops responding."""

from __future__ import annotations

import logging
import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

logger = logging.getLogger("penstock.connectors.postgres")

T = TypeVar("T")


class TimeoutConnection(psycopg.Connection[Any]):
    """Closes itself when the server neither sends nor accepts data for too long.

    A server that hangs, or a proxy whose server is gone, keeps its connections open, and the
    kernel still answers keepalives. Then this connection behaves as if it had broken: what it was
    executing may have happened, or may still happen.
    """

    server = "PostgreSQL"
    timeout = 120.0
    """Seconds of silence; a COPY that makes progress is never silent."""
    _timed_out: psycopg.OperationalError | None = None

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Run one of psycopg's generators, as every operation does."""
        if self._timed_out is not None:
            # The cleanup of a COPY or transaction that has timed out.
            raise self._timed_out
        return super().wait(self._with_timeout(gen), *args, **kwargs)

    def _with_timeout(self, gen: PQGen[T]) -> PQGen[T]:
        """Forward what psycopg's wait loop sends, several times a second, ready or not."""
        last_ready, has_warned = time.monotonic(), False
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last_ready = now
                elif now - last_ready > self.timeout:
                    self._time_out()
                elif now - last_ready > self.timeout / 2 and not has_warned:
                    has_warned = True
                    logger.warning(
                        "%s has not responded for %.0f s; the connection is closed after %g s",
                        self.server,
                        now - last_ready,
                        self.timeout,
                    )
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _time_out(self) -> None:
        self.close()
        message = f"the server did not respond for {self.timeout:g} s: the connection was closed"
        self._timed_out = psycopg.OperationalError(message)
        raise self._timed_out
