"""Reads the state of jobs from other programs: a client of `penstock serve`."""

from penstock.queryable.answers import Entry, KeyResult, Known, KnownState, LookUp, Page
from penstock.queryable.client import QueryableStateClient
from penstock.queryable.errors import (
    QueryableStateError,
    StaleAnswerError,
    StateForbiddenError,
    StateNotFoundError,
    StateRequestError,
    StateServerError,
)

__all__ = [
    "Entry",
    "KeyResult",
    "Known",
    "KnownState",
    "LookUp",
    "Page",
    "QueryableStateClient",
    "QueryableStateError",
    "StaleAnswerError",
    "StateForbiddenError",
    "StateNotFoundError",
    "StateRequestError",
    "StateServerError",
]
