"""Answers calls about state with the statuses of their errors."""

from __future__ import annotations

from penstock.errors import (
    BadCursorError,
    CorruptStateError,
    DisappearedSnapshotError,
    KeyNotOfTypeError,
    NoCheckpointError,
    PenstockError,
    StaleStateError,
    StateNotQueryableError,
    StateUnavailableError,
    UnknownCheckpointError,
    UnknownOperatorError,
    UnknownStateError,
)
from penstock.redaction import redact
from penstock.serve.http.answers import RestError

_STATUSES: dict[type[PenstockError], int] = {
    BadCursorError: 400,
    KeyNotOfTypeError: 400,
    StateNotQueryableError: 403,
    NoCheckpointError: 404,
    UnknownCheckpointError: 404,
    UnknownOperatorError: 404,
    UnknownStateError: 404,
    StaleStateError: 412,
    CorruptStateError: 503,
    DisappearedSnapshotError: 503,
    StateUnavailableError: 503,
}
_BY_NAME = {kind.__name__: status for kind, status in _STATUSES.items()}


def rest_error(error: PenstockError) -> RestError:
    """Return what an error is answered with."""
    return RestError(_STATUSES.get(type(error), 503), redact(str(error)))


def status_of(name: str) -> int:
    """Return the status of the error that a driver has answered with; it may be a newer one."""
    return _BY_NAME.get(name, 503)
