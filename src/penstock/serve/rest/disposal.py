"""Deletes savepoints of the jobs in the server's checkpoint directory."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.common.config.locations import parse_location
from penstock.errors import NotASavepointError
from penstock.redaction import redact
from penstock.savepoint.directory import dispose, read_savepoint_metadata
from penstock.serve.flink_json.failure_causes import failure_cause
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.rest.triggers import sent_place, trigger_of


class DisposalBody(msgspec.Struct, frozen=True):
    """The body of `POST /savepoint-disposal`."""

    savepoint_path: str = msgspec.field(name="savepoint-path")
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


def trigger_disposal(call: Call) -> dict[str, Any]:
    """Delete a savepoint; its status says what became of it."""
    body = call.json(DisposalBody)
    trigger = trigger_of(body.trigger_id)
    settings = call.context.settings
    place = sent_place(body.savepoint_path, "savepoint-path")
    path = parse_location(place, settings.storage_options)
    disposals = call.context.disposals
    if not disposals.begin(trigger):
        return {"request-id": trigger}
    failure: str | None = "it was interrupted"
    try:
        # What is no savepoint of a job here is none of this server's business.
        owner = read_savepoint_metadata(path).job_id
        if call.context.jobs.find(owner) is None:
            failure = f"it is a savepoint of job {owner!r}, which is not in this directory"
        else:
            dispose(path, settings.directory, settings.storage_options)
            failure = None
    except (NotASavepointError, OSError) as error:
        failure = redact(str(error))
    finally:
        disposals.end(trigger, failure)
    return {"request-id": trigger}


def disposal_status(call: Call) -> dict[str, Any]:
    """Return what became of a disposal."""
    trigger = call.path["triggerid"].lower()
    # In this order: it may end between the two.
    if call.context.disposals.is_going_on(trigger):
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    found = call.context.disposals.result(trigger)
    if found is None:
        raise RestError(404, f"There is no savepoint disposal with triggerId={trigger}.")
    (failure,) = found
    operation = {} if failure is None else {"failure-cause": failure_cause(failure)}
    return {"status": {"id": "COMPLETED"}, "operation": operation}


ENDPOINTS = [
    Endpoint(
        "POST",
        "/savepoint-disposal",
        trigger_disposal,
        "Delete a savepoint",
        body=DisposalBody,
    ),
    Endpoint(
        "GET",
        "/savepoint-disposal/:triggerid",
        disposal_status,
        "What became of a deletion",
    ),
]
