"""The calls about submitted jobs: their processes, restarts and records."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.submission.calls.found_submissions import submission_of
from penstock.serve.submission.calls.rest_errors import answering, submissions_of
from penstock.serve.submission.calls.waiting import waiting
from penstock.serve.submission.records import SubmissionDir
from penstock.serve.submission.start_status import StartStatus, status_of
from penstock.serve.submission.submissions import Submissions


class RestartRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of a request to start a job again."""

    savepoint_path: str | None = None
    fresh: bool = False


@answering
def submitted(call: Call) -> dict[str, Any]:
    """Return all submitted jobs."""
    submissions = submissions_of(call)
    return {"submissions": [_shown(submissions, job) for job in submissions.jobs()]}


@answering
def submitted_job(call: Call) -> dict[str, Any]:
    """Return a submitted job with its starts."""
    job = submission_of(call)
    starts = [
        {
            "start": start.number,
            "requested": _millis(None if request is None else request.time),
            "savepoint-path": None if request is None else request.restore_path,
            "fresh": request is not None and request.fresh,
            **_process(status_of(start)),
        }
        for start in reversed(job.starts)
        for request in [start.request]
    ]
    return {**_shown(submissions_of(call), job), "starts": starts}


@answering
@waiting
def restart(call: Call) -> dict[str, Any]:
    """Start a job again that has ended or died, and wait until it has started."""
    submissions, job = submissions_of(call), submission_of(call)
    request = call.json(RestartRequest)
    start = submissions.restart(job, path=request.savepoint_path, fresh=request.fresh)
    submissions.await_job(job, start)
    return {"jobid": hex_id(job.job), "penstock-id": job.job, "start": start.number}


@answering
def suspend(call: Call) -> dict[str, Any]:
    """End the process of a job between micro-batches, also one that has not started its job yet."""
    submissions, job = submissions_of(call), submission_of(call)
    if not submissions.suspend(job):
        raise RestError(409, f"Job {job.job} has no process of this server")
    return {}


@answering
def delete_submission(call: Call) -> dict[str, Any]:
    """Delete the record and the logs of a job that does not run; its checkpoints stay."""
    submissions_of(call).delete(submission_of(call))
    return {}


def _shown(submissions: Submissions, job: SubmissionDir) -> dict[str, Any]:
    submission = job.read()
    return {
        "jobid": hex_id(job.job),
        "penstock-id": job.job,
        "program": None if submission is None else submission.program,
        "entry": None if submission is None else submission.entry,
        "submitted": _millis(None if submission is None else submission.submitted),
        "arguments": [] if submission is None else submission.args,
        "settings": {} if submission is None else submission.settings,
        **_process(submissions.status(job)),
    }


def _process(status: StartStatus) -> dict[str, Any]:
    process = status.process
    return {
        "process-status": status.status.value,
        "pid": None if process is None else process.pid,
        "host": None if process is None else process.host,
        "started": _millis(None if process is None else process.time),
        "ended": _millis(status.ended),
        "exit-code": status.code,
    }


def _millis(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)


ENDPOINTS = [
    Endpoint("GET", "/submissions", submitted, "The submitted jobs"),
    Endpoint("GET", "/submissions/:jobid", submitted_job, "A submitted job with its starts"),
    Endpoint(
        "DELETE", "/submissions/:jobid", delete_submission, "Delete the record and logs of a job"
    ),
    Endpoint(
        "POST",
        "/submissions/:jobid/restart",
        restart,
        "Start a job again that has ended or died",
        body=RestartRequest,
    ),
    Endpoint(
        "POST",
        "/submissions/:jobid/suspend",
        suspend,
        "End the process of a job between micro-batches",
    ),
]
