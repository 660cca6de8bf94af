"""What a client of queryable state raises; each has the server's message."""

from __future__ import annotations


class QueryableStateError(Exception):
    """State could not be read; `status` is that of the answer, 0 if there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class StateRequestError(QueryableStateError):
    """The server does not understand the request: a key, cursor or level cannot be used (400)."""


class StateForbiddenError(QueryableStateError):
    """The state is not queryable, or the token does not allow to read (401, 403)."""


class StateNotFoundError(QueryableStateError):
    """There is no such job, operator, state or checkpoint (404). A missing key is no error."""


class StaleAnswerError(QueryableStateError):
    """The state is older than `max_staleness` (412)."""


class StateServerError(QueryableStateError):
    """The server, the storage or the job's driver cannot answer now (5xx, or no connection)."""


_BY_STATUS: dict[int, type[QueryableStateError]] = {
    400: StateRequestError,
    401: StateForbiddenError,
    403: StateForbiddenError,
    404: StateNotFoundError,
    412: StaleAnswerError,
}


def error_for(status: int, message: str) -> QueryableStateError:
    """Return the error for the status of an answer."""
    return _BY_STATUS.get(status, StateServerError)(message, status)
