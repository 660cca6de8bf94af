"""Retry strategies of async calls."""

from __future__ import annotations

from typing import Any

from penstock.datastream.async_functions import (
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    ExceptionPredicate,
    ResultPredicate,
)
from penstock.errors import InvalidJobError

__all__ = [
    "NO_RETRY_STRATEGY",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]


class RetryPredicate(AsyncRetryPredicate[Any]):
    """A pair of predicates, each of which may be None."""

    def __init__(
        self, result_predicate: ResultPredicate, exception_predicate: ExceptionPredicate
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate:
        """Return a predicate that is true for results to retry, or None."""
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate:
        """Return a predicate that is true for exceptions to retry, or None."""
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[Any]):
    """Never retries."""

    def can_retry(self, current_attempts: int) -> bool:
        """Return false."""
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return -1, which is never used."""
        return -1

    def get_retry_predicate(self) -> RetryPredicate:
        """Return a predicate that is never true."""
        return RetryPredicate(None, None)


class _BoundedRetryStrategy(AsyncRetryStrategy[Any]):
    _max_attempts: int
    _predicate: RetryPredicate

    def can_retry(self, current_attempts: int) -> bool:
        """Tell whether there is another attempt; the first is not counted, as in PyFlink."""
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> RetryPredicate:
        """Return the predicate of results and exceptions to retry."""
        return self._predicate


class FixedDelayRetryStrategy(_BoundedRetryStrategy):
    """Retries a number of times with a fixed delay."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> None:
        _check(max_attempts=max_attempts, backoff_time_millis=backoff_time_millis)
        self._max_attempts = max_attempts
        self._backoff = backoff_time_millis
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the fixed delay."""
        return self._backoff


class ExponentialBackoffDelayRetryStrategy(_BoundedRetryStrategy):
    """Retries a number of times with an exponential backoff."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate,
        exception_predicate: ExceptionPredicate,
    ) -> None:
        _check(
            max_attempts=max_attempts,
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        self._max_attempts = max_attempts
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return a delay that grows with the attempts, up to the maximum."""
        if current_attempts <= 1:
            return self._initial_delay
        grown = self._initial_delay * self._multiplier ** (current_attempts - 1)
        return int(min(grown, self._max_retry_delay))


def _check(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            message = f"{name} of a retry strategy must be above zero; got {number!r}"
            raise InvalidJobError(message)


NO_RETRY_STRATEGY = NoRetryStrategy()
