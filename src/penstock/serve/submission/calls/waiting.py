"""Limits how many calls wait for programs, so that the others need not wait for them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call

_AT_ONCE = 8
_running = threading.BoundedSemaphore(_AT_ONCE)

Answer = TypeVar("Answer")


def waiting(function: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Refuse a call if many wait for programs already."""

    @functools.wraps(function)
    def wrapped(call: Call) -> Answer:
        if not _running.acquire(blocking=False):
            raise RestError(503, "Too many programs are being started; try again later")
        try:
            return function(call)
        finally:
            _running.release()

    return wrapped
