"""The failures of a job."""

from __future__ import annotations

import re
from typing import Any

from penstock.checkpoint.history import ExceptionRecord
from penstock.serve.flink_json.statuses import millis
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.rest.found_jobs import job_of

_MOST = 20
_CLASS = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")


def exceptions(call: Call) -> dict[str, Any]:
    """Return the failures of a job, newest first."""
    cached, _ = job_of(call)
    most = _number(call.flag("maxExceptions"))
    wanted = [_label(text) for text in call.names("failureLabelFilter") or []]
    entries = [_entry(record) for record in cached.exceptions()]
    found = [e for e in entries if all(e["failureLabels"].get(k) == v for k, v in wanted)]
    return {"exceptionHistory": {"entries": found[:most], "truncated": len(found) > most}}


def _entry(record: ExceptionRecord) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "exceptionName": _name(record),
        "stacktrace": record.traceback or record.message,
        "timestamp": millis(record.time),
        "failureLabels": {"attempt": record.attempt},
        "concurrentExceptions": [],
        "penstock-message": record.message,
    }
    if record.step is not None:
        # Which subtask it was is in the traceback, if it is known at all.
        entry |= {"taskName": record.step, "endpoint": "(unassigned)"}
        entry["taskManagerId"] = "(unassigned)"
    return entry


def _name(record: ExceptionRecord) -> str:
    """Return the class of an exception: the last line of its traceback begins with it."""
    lines = record.traceback.strip().splitlines()
    found = _CLASS.match(lines[-1].strip()) if lines else None
    return "JobFailure" if found is None else found[1]


def _number(text: str | None) -> int:
    if text is None:
        return _MOST
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise RestError(400, f"Cannot resolve query parameter (maxExceptions) from value {text!r}.")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        message = f"{text!r} may be a `key:value` pair only (e.g. 'attempt:a2')"
        raise RestError(400, message)
    return key, value


ENDPOINTS = [
    Endpoint(
        "GET",
        "/jobs/:jobid/exceptions",
        exceptions,
        "The failures of a job, newest first",
        query=("maxExceptions", "failureLabelFilter"),
    )
]
