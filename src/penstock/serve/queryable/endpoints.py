"""The calls that look up state."""

from __future__ import annotations

from typing import Any

from anyio import to_thread

from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.queryable.parameters import PARAMETERS

_STATE = "/jobs/:jobid/state"
_OF_CHECKPOINTS = ("level", "checkpoint", "max_staleness")


async def entries(call: Call) -> dict[str, Any]:
    """Look up keys of a state, or scan it."""
    lookups = call.context.lookups
    found = lookups.at_once(call)
    if found is not None:
        return found
    return await to_thread.run_sync(lookups.entries, call, limiter=lookups.threads())


def all_states(call: Call) -> dict[str, Any]:
    """List all states, or what they have of a key."""
    lookups = call.context.lookups
    return lookups.known_of(call) if "key" in call.query else lookups.names(call)


def states_of_operator(call: Call) -> dict[str, Any]:
    """List the states of an operator."""
    return call.context.lookups.names(call)


ENDPOINTS = [
    Endpoint(
        "GET",
        _STATE,
        all_states,
        "The keyed states of a job; with key= what they have of it",
        query=("key", "json", "limit", "expired", *_OF_CHECKPOINTS),
    ),
    Endpoint(
        "GET",
        f"{_STATE}/:operator",
        states_of_operator,
        "The keyed states of an operator",
        query=_OF_CHECKPOINTS,
    ),
    Endpoint(
        "GET",
        f"{_STATE}/:operator/:state*",
        entries,
        "The entries of keys in a state, or a page of it",
        query=PARAMETERS,
    ),
]
"""An operator is named by its uid, a state by its name or its queryable name."""
