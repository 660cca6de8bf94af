"""The thread that receives from a broker and acknowledges to it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from penstock.connectors.received_log import ReceivedLog
from penstock.connectors.receiver import Receiver
from penstock.connectors.reception import Due, Reception

__all__ = ["Receiving"]

_log = logging.getLogger(__name__)

_RECEIVE_AT_ONCE = 10_000
_ACKNOWLEDGE_AT_ONCE = 10_000
_RECEIVE_SECONDS = 0.1
_STALLED_SECONDS = 0.02
_WARN_OF_STALL_SECONDS = 5.0
_CLOSE_SECONDS = 60.0


class Receiving:
    """Moves deliveries into the log, and tells the broker what is settled.

    `step` is one round of the thread; everything it needs after a crash is the broker's or the
    checkpoint's, so that a round may end anywhere.
    """

    def __init__(
        self,
        receiver: Receiver,
        reception: Reception,
        log: ReceivedLog,
        limit: int,
        wake: Callable[[], None],
    ) -> None:
        self.error: Exception | None = None
        self.has_ended = False
        """Whether everything there will ever be is in the books; then nothing is received."""
        self._receiver = receiver
        self._reception = reception
        self._log = log
        self._limit = limit
        self._wake = wake
        self._stopping = threading.Event()
        self._stalled_since: float | None = None
        self._has_warned = False
        self._extended = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self) -> None:
        """Acknowledge what is settled, give back the rest, and close the receiver."""
        self._stopping.set()
        if not self._thread.is_alive():
            self._finish()
            return
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("a receiver did not stop within %g s: left to itself", _CLOSE_SECONDS)

    def step(self, timeout: float = _RECEIVE_SECONDS) -> None:
        """Acknowledge what is due, then receive."""
        self._acknowledge_settled()
        self._extend()
        room = self._limit - self._reception.unacknowledged
        if self.has_ended:
            self._stopping.wait(timeout)
        elif room <= 0:
            self._tell_stall()
            self._stopping.wait(min(timeout, _STALLED_SECONDS))
        else:
            self._stalled_since = None
            self._receive(min(room, _RECEIVE_AT_ONCE), timeout)

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
                if not self._acknowledge_settled():
                    _log.warning(
                        "not sure that the broker has the last acknowledgements: what it delivers "
                        "again is dropped by a job that is restored, not by one that begins anew"
                    )
                self._receiver.reject(self._reception.give_up())
        except Exception:
            _log.warning("the broker did not take the last acknowledgements", exc_info=True)
        finally:
            self._receiver.close()

    def _receive(self, limit: int, timeout: float) -> None:
        deliveries = self._receiver.receive(limit, timeout)
        if deliveries:
            admitted = self._reception.admit(deliveries)
            if admitted.ids:
                self._log.append(admitted.payloads)
                self._reception.logged(admitted.ids, time.monotonic())
                self._wake()
            self._acknowledge(admitted.again)
        elif self._receiver.has_ended(self._reception.unacknowledged):
            self.has_ended = True
            self._wake()

    def _acknowledge_settled(self) -> bool:
        is_sure, is_any = True, False
        while (due := self._reception.due(_ACKNOWLEDGE_AT_ONCE)).ids:
            is_any = True
            is_sure &= self._acknowledge(due)
        if is_any:
            number = self._receiver.acknowledged_up_to()
            if number is not None:
                self._reception.acknowledged_up_to(number)
        return is_sure

    def _acknowledge(self, due: Due) -> bool:
        if not due.handles:
            return True
        is_sure = self._receiver.acknowledge(due.handles)
        if is_sure:
            self._reception.acknowledged(due.ids)
        return is_sure

    def _extend(self) -> None:
        period, now = self._receiver.extend_after, time.monotonic()
        if period is None or now < self._extended + period:
            return
        # What came since the last time has at least as long to go.
        handles = self._reception.waiting_since(self._extended)
        self._extended = now
        if handles:
            self._receiver.extend(handles)

    def _tell_stall(self) -> None:
        now = time.monotonic()
        if self._stalled_since is None:
            self._stalled_since, self._has_warned = now, False
        elif not self._has_warned and now > self._stalled_since + _WARN_OF_STALL_SECONDS:
            self._has_warned = True
            _log.warning(
                "%d records wait for a checkpoint to be acknowledged, and no more are received: "
                "take checkpoints more often (execution.checkpointing.interval), or allow more "
                "unacknowledged records",
                self._reception.unacknowledged,
            )
