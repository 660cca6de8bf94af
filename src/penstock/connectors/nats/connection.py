"""A NATS connection in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.connectors.nats.settings import NatsSettings
from penstock.errors import NatsConnectionError, RuntimeSetupError

if TYPE_CHECKING:
    from nats.aio.client import Client

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_RECONNECT_SECONDS = 0.25
_BUFFERED_BYTES = 16 << 20

_R = TypeVar("_R")


def nats_client() -> type[Client]:
    """Import nats-py, or raise an error that names the extra to install."""
    try:
        from nats.aio.client import Client
    except ImportError as error:
        message = "NATS needs nats-py on the driver: pip install '/path/to/penstock[nats]'"
        raise RuntimeSetupError(message) from error
    return Client


class NatsConnection:
    """Connects, or raises; once connected, it reconnects whenever the servers are unreachable.

    `reconnects` counts the reconnections.
    """

    def __init__(self, settings: NatsSettings, name: str) -> None:
        self.client = nats_client()()
        self.reconnects = 0
        self._settings = settings
        self._shown = settings.shown_servers
        self._name = name
        self._last_error = ""
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()
        try:
            self.call(self._connect())
        except BaseException:
            self.close()
            raise

    def call(self, coroutine: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine in the connection's thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._is_closing = True
        with contextlib.suppress(Exception):
            self.call(asyncio.wait_for(self.client.close(), _CONNECT_SECONDS))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connect(self) -> None:
        connecting = self.client.connect(
            servers=list(self._settings.servers),
            **{
                "name": self._name,
                "max_reconnect_attempts": -1,
                "reconnect_time_wait": _RECONNECT_SECONDS,
                "pending_size": _BUFFERED_BYTES,
                "error_cb": self._failed,
                "disconnected_cb": self._disconnected,
                "reconnected_cb": self._reconnected,
                **self._settings.options,
            },
        )
        try:
            await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        except TimeoutError:
            reason = self._last_error or f"no response within {_CONNECT_SECONDS:g} s"
            raise NatsConnectionError(self._shown, reason) from None
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise NatsConnectionError(self._shown, reason) from error

    async def _failed(self, error: Exception) -> None:
        self._last_error = str(error) or type(error).__name__
        _log.debug("NATS: %s", self._last_error)

    async def _disconnected(self) -> None:
        if not self._is_closing:
            _log.warning("Lost the connection to NATS at %s: reconnecting", self._shown)

    async def _reconnected(self) -> None:
        self.reconnects += 1
        _log.warning("Reconnected to NATS at %s", self._shown)
