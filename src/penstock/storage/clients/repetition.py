"""Repeats requests to stores that failed for a passing reason, for a limited time."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.common.storage_url import StorageUrl

logger = logging.getLogger("penstock.storage")

T = TypeVar("T")


class Failed(Protocol):
    """What is known of a failed request."""

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a little later."""

    @property
    def summary(self) -> str:
        """What has happened, in few words."""

    def as_os_error(self, url: StorageUrl, store: StorageUrl) -> OSError:
        """Return the error for the caller, with the URL of the file."""


@dataclass(frozen=True)
class Repetition:
    """How long requests are repeated, with waits that double."""

    seconds: float
    first_wait: float
    longest_wait: float

    def run(
        self,
        attempt: Callable[[], T],
        url: StorageUrl,
        store: StorageUrl,
        explain: Callable[[Exception], Failed | None],
    ) -> T:
        """Return what an attempt returns; None from `explain` lets an error through as it is.

        Raises:
            OSError: the reason does not pass, or the time is over.
        """
        deadline = time.monotonic() + self.seconds
        wait = self.first_wait
        while True:
            try:
                return attempt()
            except Exception as error:
                failed = explain(error)
                if failed is None:
                    raise
                if not failed.is_passing or time.monotonic() + wait > deadline:
                    raise failed.as_os_error(url, store) from error
            logger.info(
                "A request for %s failed (%s): repeating it in %.1f s.", url, failed.summary, wait
            )
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, self.longest_wait)
