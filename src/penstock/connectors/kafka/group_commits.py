"""The offsets of a consumer group, told to the broker behind the job's back.

They are for monitors and for a later start of another job: a job itself goes on by its
checkpoints. So a commit that fails is tried again and otherwise only warned about.
"""

from __future__ import annotations

import logging
import threading
import time

from penstock.connectors.kafka.broker import Broker
from penstock.connectors.kafka.client import confluent
from penstock.connectors.kafka.offsets import Offsets

__all__ = ["GroupCommits"]

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_LAST_TRY_SECONDS = 3.0


class GroupCommits:
    """Commits the newest offsets that are wanted, one request at a time.

    All but :meth:`want` is called by one thread.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._wanted: Offsets = {}
        self._under_way: Offsets = {}
        self._committed: Offsets = {}
        self._not_before = 0.0
        self._failing = False

    def want(self, offsets: Offsets) -> None:
        """Ask for these offsets to be committed; what was wanted before is overtaken."""
        with self._lock:
            self._wanted = offsets

    def go_on(self) -> None:
        """Begin a commit if one is due, and see to the one under way; never blocks."""
        self._broker.poll()
        if self._under_way or time.monotonic() < self._not_before:
            return
        if changed := self._changed():
            self._under_way = changed
            try:
                self._broker.commit(changed, self._done)
            except confluent().KafkaException as error:
                self._done(str(error))

    def finish(self) -> None:
        """Try for a moment to get everything committed."""
        self._not_before = 0.0
        deadline = time.monotonic() + _LAST_TRY_SECONDS
        while (self._changed() or self._under_way) and time.monotonic() < deadline:
            self.go_on()
            self._broker.poll(0.05)

    def _changed(self) -> Offsets:
        with self._lock:
            wanted = self._wanted
        return {p: offset for p, offset in wanted.items() if self._committed.get(p) != offset}

    def _done(self, error: str | None) -> None:
        if error is None:
            self._committed |= self._under_way
        else:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            if not self._failing:
                group = self._broker.group
                _log.warning("offsets of group %r are not committed: %s", group, error)
        self._failing = error is not None
        self._under_way = {}
