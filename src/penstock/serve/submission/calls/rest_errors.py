"""Answers calls about programs with the statuses of their errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import (
    CorruptJournalError,
    DuplicateJobSubmissionError,
    ProcessNotStartedError,
    ProgramTooLargeError,
    RestartRefusedError,
    SubmissionError,
    UnknownSubmissionError,
)
from penstock.redaction import redact
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call
from penstock.serve.submission.submissions import Submissions

_DISABLED = (
    "This server runs no programs: start it with --submission, or set "
    "penstock.serve.submission.enabled"
)
# Flink answers 400 for a JAR file that does not exist.
_STATUSES: dict[type[SubmissionError], int] = {
    UnknownSubmissionError: 404,
    DuplicateJobSubmissionError: 409,
    RestartRefusedError: 409,
    ProgramTooLargeError: 413,
    ProcessNotStartedError: 503,
}

Answer = TypeVar("Answer")


def submissions_of(call: Call) -> Submissions:
    """Return the submitted jobs of a server.

    Raises:
        RestError: the server runs no programs.
    """
    if call.context.submissions is None:
        raise RestError(403, _DISABLED)
    return call.context.submissions


def answering(function: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Answer with the status of an error."""

    @functools.wraps(function)
    def wrapped(call: Call) -> Answer:
        try:
            return function(call)
        except SubmissionError as error:
            raise rest_error(error) from error
        except CorruptJournalError as error:
            raise RestError(409, redact(str(error))) from error

    return wrapped


def rest_error(error: SubmissionError) -> RestError:
    """Return what an error is answered with."""
    return RestError(_STATUSES.get(type(error), 400), redact(str(error)))
