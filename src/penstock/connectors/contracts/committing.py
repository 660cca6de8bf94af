"""Calls a committer, retries what it asks to retry, and fails if anything stays uncommitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.connectors.contracts.committer import CommitOutcome, CommitRequest, Committer
from penstock.errors import CommitFailedError

_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CommitReport:
    """How many committables were committed now, had been committed before, or were retried."""

    committed: int = 0
    already_committed: int = 0
    retried: int = 0


def seconds_before_retry(retry: int) -> float:
    """Return how long to wait before the first, second, … retry: longer every time."""
    return float(min(0.1 * 2 ** min(retry - 1, 20), _LONGEST_PAUSE_SECONDS))


def commit_all(
    committer: Committer,
    committables: Sequence[bytes],
    *,
    retries: int,
    pause: Callable[[int], None],
    step: str,
) -> CommitReport:
    """Commit everything, or raise `CommitFailedError`.

    Called when the journal says that the checkpoint with these committables is complete, and again
    after a crash or an error, because the checkpoint still holds them all. ``pause`` is called with
    the number of the retry, 1 first.
    """
    requests = [CommitRequest(committable) for committable in committables]
    committed = already_committed = retried = 0
    for retry in range(retries + 1):
        if not requests:
            break
        if retry:
            retried += len(requests)
            pause(retry)
            for request in requests:
                request.begin_retry()
        _commit_once(committer, requests, step)
        outcomes = [request.outcome for request in requests]
        already_committed += outcomes.count(CommitOutcome.ALREADY_COMMITTED)
        requests = [r for r in requests if r.outcome is CommitOutcome.RETRY_LATER]
        committed += outcomes.count(None)
    if requests:
        reason = f"the sink still requests a retry after {retries} retries"
        # Later requests may only wait for the first one, which has the reason.
        error = next((request.error for request in requests if request.error is not None), None)
        if error is not None:
            reason += f": {_text(error)}"
        raise CommitFailedError(step, "failed", len(requests), reason) from error
    return CommitReport(committed, already_committed, retried)


def _commit_once(committer: Committer, requests: Sequence[CommitRequest], step: str) -> None:
    raised: Exception | None = None
    try:
        committer.commit(requests)
    except Exception as error:
        raised = error
        for request in requests:
            if request.outcome is None:
                request.signal_failed_with_unknown_reason(error)
    for outcome in (CommitOutcome.UNKNOWN, CommitOutcome.FAILED):
        failed = [request for request in requests if request.outcome is outcome]
        if failed:
            reason = failed[0].error
            kind = "unknown" if outcome is CommitOutcome.UNKNOWN else "impossible"
            raise CommitFailedError(step, kind, len(failed), _text(reason)) from reason
    if raised is not None:
        raise CommitFailedError(step, "unknown", len(requests), _text(raised)) from raised


def _text(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
