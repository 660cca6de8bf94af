"""The clients of this process, one for each store and its settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.common.storage_url import StorageUrl

C = TypeVar("C")


class ClientCache(Generic[C]):
    """Makes the client of a store when it is first needed; any thread may call.

    A forked process makes clients of its own.
    """

    def __init__(self, make: Callable[[StorageUrl], C]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[tuple[object, ...], C] = {}
        os.register_at_fork(after_in_child=self._renew_lock)

    def get(self, url: StorageUrl) -> C:
        """Return the client, which is shared by all storages with the same settings."""
        key = (os.getpid(), url.scheme, url.authority, tuple(sorted(url.options.items())))
        client = self._clients.get(key)
        if client is None:
            made = self._make(url)
            with self._lock:
                client = self._clients.setdefault(key, made)
        return client

    def _renew_lock(self) -> None:
        # Another thread of the parent may have held it.
        self._lock = threading.Lock()
