"""Receives from a broker and acknowledges to it, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.connectors.acknowledging.delivery_tracker import DeliveryTracker
from penstock.connectors.acknowledging.received_log import ReceivedLog
from penstock.connectors.acknowledging.receiver import Receiver
from penstock.connectors.acknowledging.seen_ids import DeliveryId
from penstock.errors import FencedError

_log = logging.getLogger(__name__)

_MAX_RECEIVED = 10_000
_MAX_ACKNOWLEDGED = 10_000
_RECEIVE_SECONDS = 0.1
_STALLED_SECONDS = 0.02
_STALL_WARNING_SECONDS = 5.0
_CLOSE_SECONDS = 60.0


class ReceiverLoop:
    """Moves deliveries into the log, and acknowledges what completed checkpoints include.

    `step` is one iteration of the thread. It may be interrupted anywhere: everything that is needed
    after a crash is in the broker or in the checkpoint.
    """

    def __init__(
        self,
        receiver: Receiver,
        tracker: DeliveryTracker,
        log: ReceivedLog,
        max_unacknowledged: int,
        wake: Callable[[], None],
        check_owner: Callable[[], None],
    ) -> None:
        self.error: Exception | None = None
        self.has_ended = False
        """Whether a bounded source has received everything; then it only acknowledges."""
        self._receiver = receiver
        self._tracker = tracker
        self._log = log
        self._max_unacknowledged = max_unacknowledged
        self._wake = wake
        self._check_owner = check_owner
        self._stopping = threading.Event()
        self._stalled_since: float | None = None
        self._has_warned = False
        self._extended = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Acknowledge what is checkpointed, reject the rest, and close the receiver."""
        self._stopping.set()
        if not self._thread.is_alive():
            self._finish()
            return
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("A receiver did not stop within %g s and is abandoned", _CLOSE_SECONDS)

    def step(self, timeout: float = _RECEIVE_SECONDS) -> None:
        """Acknowledge what is due, then receive."""
        self._check_owner()
        self._acknowledge_checkpointed()
        self._extend()
        capacity = self._max_unacknowledged - self._tracker.unacknowledged
        if self.has_ended:
            self._stopping.wait(timeout)
        elif capacity <= 0:
            self._warn_if_stalled()
            self._stopping.wait(min(timeout, _STALLED_SECONDS))
        else:
            self._stalled_since = None
            self._receive(min(capacity, _MAX_RECEIVED), timeout)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
        except Exception as error:
            self.error = error
        finally:
            self._wake()
        self._stopping.wait()
        self._finish()

    def _finish(self) -> None:
        try:
            if self.error is None:
                self._check_owner()
                if not self._acknowledge_checkpointed():
                    _log.warning(
                        "The broker has not confirmed the last acknowledgements: redelivered "
                        "messages are dropped by a restored job, but not by one that starts fresh"
                    )
                self._receiver.reject(self._tracker.not_checkpointed())
        except FencedError:
            pass  # the next driver receives and acknowledges
        except Exception:
            _log.warning("Sending the last acknowledgements failed", exc_info=True)
        finally:
            self._receiver.close()

    def _receive(self, limit: int, timeout: float) -> None:
        deliveries = self._receiver.receive(limit, timeout)
        if deliveries:
            new, redelivered = self._tracker.admit(deliveries)
            if new:
                # Logged before they are planned; a crash in between only causes redeliveries.
                self._log.append([payload for _, payload, _ in new])
                self._tracker.logged([id_ for id_, _, _ in new], time.monotonic())
                self._wake()
            if redelivered:
                self._acknowledge([d.id for d in redelivered], [d.handle for d in redelivered])
        elif self._receiver.has_ended(self._tracker.unacknowledged):
            self.has_ended = True
            self._wake()

    def _acknowledge_checkpointed(self) -> bool:
        confirmed: list[bool] = []
        while (due := self._tracker.take_checkpointed(_MAX_ACKNOWLEDGED))[0]:
            confirmed.append(self._acknowledge(*due))
        if confirmed and (number := self._receiver.acknowledged_up_to()) is not None:
            self._tracker.acknowledged_up_to(number)
        return all(confirmed)

    def _acknowledge(self, ids: Sequence[DeliveryId], handles: Sequence[Any]) -> bool:
        is_confirmed = self._receiver.acknowledge(handles)
        if is_confirmed:
            self._tracker.acknowledged(ids)
        return is_confirmed

    def _extend(self) -> None:
        period, now = self._receiver.extend_after, time.monotonic()
        if period is None or now < self._extended + period:
            return
        # What was received since the last extension has at least that long left.
        handles = self._tracker.waiting_since(self._extended)
        self._extended = now
        if handles:
            self._receiver.extend(handles)

    def _warn_if_stalled(self) -> None:
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since, self._has_warned = now, False
        elif not self._has_warned and now > self._stalled_since + _STALL_WARNING_SECONDS:
            self._has_warned = True
            _log.warning(
                "The source has stopped receiving: %d records wait for a checkpoint to be "
                "acknowledged; checkpoint more often (execution.checkpointing.interval), or allow "
                "more unacknowledged records",
                self._tracker.unacknowledged,
            )
