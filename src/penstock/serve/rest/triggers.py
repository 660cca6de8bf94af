"""Savepoints, stops, checkpoints and cancellation: requests to the drivers of jobs."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from penstock.common.config.checkpoint_options import SAVEPOINT_DIR
from penstock.common.config.option_kinds import LOCATION
from penstock.common.storage_url import StorageUrl
from penstock.recovery.control import Answer, Cancel, Checkpoint, Request, Savepoint, Stop
from penstock.serve.flink_json.failure_causes import failure_cause
from penstock.serve.flink_json.statuses import flink_status, is_ended
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.cached_job import JobView
from penstock.serve.jobs.requests import JobRequests, Pending
from penstock.serve.rest.checkpoints import settings_of
from penstock.serve.rest.found_jobs import job_of

Format = Literal["CANONICAL", "NATIVE"]
_TRIGGER = re.compile(r"[0-9a-fA-F]{32}")
_CHECKPOINT = re.compile(r"chk-([0-9]+)")
_SAVEPOINTS, _CHECKPOINTS = "", "c0"
"""What the key of a request has besides the trigger id: each kind has trigger ids of its own."""
_CANCEL_WAIT_S = 10.0
_POLL_S = 0.05


class SavepointBody(msgspec.Struct, frozen=True):
    """The body of `POST /jobs/:jobid/savepoints`."""

    target_directory: str | None = msgspec.field(default=None, name="target-directory")
    cancel_job: bool | None = msgspec.field(default=None, name="cancel-job")
    format_type: Format | None = msgspec.field(default=None, name="formatType")
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


class StopBody(msgspec.Struct, frozen=True):
    """The body of `POST /jobs/:jobid/stop`."""

    target_directory: str | None = msgspec.field(default=None, name="targetDirectory")
    drain: bool | None = None
    format_type: Format | None = msgspec.field(default=None, name="formatType")
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


class CheckpointBody(msgspec.Struct, frozen=True):
    """The body of `POST /jobs/:jobid/checkpoints`."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] | None = msgspec.field(
        default=None, name="checkpointType"
    )
    trigger_id: str | None = msgspec.field(default=None, name="triggerId")


def savepoint(call: Call) -> dict[str, Any]:
    """Request a savepoint; with `cancel-job` the job stops with it."""
    body = call.json(SavepointBody)
    _, job = job_of(call)
    _check_format(body.format_type)
    path = _directory(call, job, body.target_directory, "target-directory")
    request = Stop(path=path) if body.cancel_job else Savepoint(path)
    return _submit(call, job, request, body.trigger_id)


def stop(call: Call) -> dict[str, Any]:
    """Request a savepoint and the end of the job."""
    body = call.json(StopBody)
    _, job = job_of(call)
    _check_format(body.format_type)
    path = _directory(call, job, body.target_directory, "targetDirectory")
    return _submit(call, job, Stop(bool(body.drain), path), body.trigger_id)


def checkpoint(call: Call) -> dict[str, Any]:
    """Request a checkpoint."""
    body = call.json(CheckpointBody)
    _, job = job_of(call)
    if body.checkpoint_type not in (None, "CONFIGURED"):
        message = (
            f"A checkpoint of type {body.checkpoint_type} cannot be triggered: the job's settings "
            "decide. Use CONFIGURED"
        )
        raise RestError(400, message)
    return _submit(call, job, Checkpoint(), body.trigger_id)


def cancel(call: Call) -> dict[str, Any]:
    """Cancel a job: request it, and wait until the driver has got it."""
    mode = (call.flag("mode") or "cancel").lower()
    if mode == "stop":
        message = (
            'The termination mode "stop" has been removed: use "cancel", or jobs/:jobid/stop for a '
            "savepoint"
        )
        raise RestError(308, message)
    if mode != "cancel":
        raise RestError(400, f"Unknown termination mode {mode}.")
    cached, job = job_of(call)
    if flink_status(job) == "CANCELED":
        return {}
    if is_ended(job):
        message = (
            "Job cancellation failed because the job has already reached another terminal state "
            f"({flink_status(job)})."
        )
        raise RestError(409, message)
    requests = JobRequests(job, call.context.settings.heartbeat_timeout_s)
    if (problem := requests.missing_driver()) is not None:
        raise RestError(409, problem)
    trigger = uuid.uuid4().hex
    requests.submit(Cancel(), trigger)
    deadline = time.monotonic() + _CANCEL_WAIT_S
    while isinstance(answer := requests.status(trigger), Pending):
        if time.monotonic() > deadline:
            raise RestError(408, "Job cancellation timed out.")
        time.sleep(_POLL_S)
        view = cached.read(time.time())
        if view is None or flink_status(view) == "CANCELED":
            return {}
        requests = JobRequests(view, call.context.settings.heartbeat_timeout_s)
    if answer is not None and not answer.ok:
        raise RestError(409, f"Job cancellation failed: {answer.message}")
    return {}


def savepoint_status(call: Call) -> dict[str, Any]:
    """Return what became of a savepoint, or of a stop."""
    answer = _status(call, "savepoint", _SAVEPOINTS)
    if isinstance(answer, Pending):
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation = {"location": answer.path} if answer.ok else _failure("failure-cause", answer)
    return {"status": {"id": "COMPLETED"}, "operation": operation}


def checkpoint_status(call: Call) -> dict[str, Any]:
    """Return what became of a checkpoint."""
    answer = _status(call, "checkpoint", _CHECKPOINTS)
    if isinstance(answer, Pending):
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    found = _CHECKPOINT.fullmatch(PurePosixPath(answer.path or "").name)
    if answer.ok and found is not None:
        operation: dict[str, Any] = {"checkpointId": int(found[1]), "failureCause": None}
    else:
        operation = {"checkpointId": None, **_failure("failureCause", answer)}
    return {"status": {"id": "COMPLETED"}, "operation": operation}


def trigger_of(given: str | None) -> str:
    """Return the trigger id that a body has, or a new one.

    Raises:
        RestError: it is malformed.
    """
    if given is None:
        return uuid.uuid4().hex
    if not _TRIGGER.fullmatch(given):
        message = f"Bad request received: triggerId {given!r} does not have 32 hexadecimal digits"
        raise RestError(400, message)
    return given.lower()


def sent_place(text: str, field: str) -> str:
    """Return a place that a body names, as a driver takes it.

    Raises:
        RestError: it is no absolute path and no place in a store that is supported.
    """
    try:
        place = LOCATION.parse(text)
    except ValueError:
        raise RestError(400, f"{field} must be {LOCATION.expected}; got {text!r}") from None
    is_relative = isinstance(place, Path) and not text.strip().startswith(("/", "file:"))
    if is_relative or not (isinstance(place, StorageUrl) or place.is_absolute()):
        message = f"{field} must be absolute: the server's directory is not the driver's"
        raise RestError(400, message)
    return str(place)


def _submit(call: Call, job: JobView, request: Request, trigger: str | None) -> dict[str, Any]:
    id_ = trigger_of(trigger)
    kind = _CHECKPOINTS if isinstance(request, Checkpoint) else _SAVEPOINTS
    requests = JobRequests(job, call.context.settings.heartbeat_timeout_s)
    # A repeated trigger is answered from the request that there is, even if the job has ended.
    if trigger is None or requests.status(id_ + kind) is None:
        if (problem := requests.missing_driver()) is not None:
            raise RestError(409, problem)
        requests.submit(request, id_ + kind)
    return {"request-id": id_}


def _status(call: Call, what: str, kind: str) -> Answer | Pending:
    _, job = job_of(call)
    text = call.path["triggerid"]
    found = None
    if _TRIGGER.fullmatch(text):
        requests = JobRequests(job, call.context.settings.heartbeat_timeout_s)
        found = requests.status(text.lower() + kind)
    if found is None:
        id_ = call.path["jobid"]
        message = f"There is no {what} operation with triggerId={text} for job {id_}."
        raise RestError(404, message)
    return found


def _directory(call: Call, job: JobView, given: str | None, field: str) -> str | None:
    if given is not None:
        return sent_place(given, field)
    settings = settings_of(job)
    if settings is not None and settings.savepoint_directory is None:
        default = call.context.settings.savepoint_directory
        if default is None:
            message = (
                f"Config key [{SAVEPOINT_DIR.key}] is not set. Property [{field}] must be provided."
            )
            raise RestError(400, message)
        return str(default)
    return None


def _check_format(format_: Format | None) -> None:
    if format_ == "NATIVE":
        raise RestError(400, "Savepoints of type NATIVE are not supported: use CANONICAL")


def _failure(field: str, answer: Answer) -> dict[str, Any]:
    return {field: failure_cause(answer.message)}


ENDPOINTS = [
    Endpoint("PATCH", "/jobs/:jobid", cancel, "Cancel a job", status=202, query=("mode",)),
    Endpoint(
        "POST",
        "/jobs/:jobid/savepoints",
        savepoint,
        "Trigger a savepoint",
        status=202,
        body=SavepointBody,
    ),
    Endpoint(
        "GET",
        "/jobs/:jobid/savepoints/:triggerid",
        savepoint_status,
        "What became of a savepoint or stop",
    ),
    Endpoint(
        "POST",
        "/jobs/:jobid/stop",
        stop,
        "Stop a job with a savepoint",
        status=202,
        body=StopBody,
    ),
    Endpoint(
        "POST",
        "/jobs/:jobid/checkpoints",
        checkpoint,
        "Trigger a checkpoint",
        status=202,
        body=CheckpointBody,
    ),
    Endpoint(
        "GET",
        "/jobs/:jobid/checkpoints/:triggerid",
        checkpoint_status,
        "What became of a triggered checkpoint",
    ),
]
