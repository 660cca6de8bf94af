"""The calls about the logs of submitted jobs."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response, StreamingResponse

from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.rest.found_jobs import LONGEST_NUMBER
from penstock.serve.submission.calls.found_submissions import submission_of
from penstock.serve.submission.calls.rest_errors import answering, submissions_of
from penstock.serve.submission.logs.job_logs import MOST_BYTES, LogFile
from penstock.serve.submission.records import SubmissionDir


@answering
def logs(call: Call) -> dict[str, Any]:
    """Return the logs of a submitted job, the newest first."""
    files = submissions_of(call).logs(submission_of(call).job).files()
    return {"logs": [_log_file(file.name, file) for file in files]}


@answering
def log_piece(call: Call) -> Any:
    """Return a piece of a log from an offset; a negative one counts from the end."""
    job = submissions_of(call).logs(submission_of(call).job)
    log = job.find(call.path["logname"])
    if log is None:
        raise RestError(404, f"Log {call.path['logname']} not found")
    return job.read(log, _number(call, "offset", 0), _number(call, "length", MOST_BYTES))


@answering
def download(call: Call) -> Response:
    """Return everything that is retained of a log."""
    return _download(call, submission_of(call), call.path["logname"])


@answering
def all_logs(call: Call) -> dict[str, Any]:
    """Return the logs of all submitted jobs, as Flink those of its job manager."""
    submissions = call.context.submissions
    if submissions is None:
        return {"logs": []}
    files = [
        _log_file(f"{job.job}.{file.name}", file)
        for job in submissions.jobs()
        for file in submissions.logs(job.job).files()
    ]
    return {"logs": files}


@answering
def any_log(call: Call) -> Response:
    """Return a log of a submitted job."""
    job, _, name = call.path["logname"].rpartition(".start-")
    return _download(call, submissions_of(call).find(job), f"start-{name}")


def _download(call: Call, job: SubmissionDir, name: str) -> Response:
    logs_ = submissions_of(call).logs(job.job)
    log = logs_.find(name)
    if log is None:
        raise RestError(404, f"Log {name} not found")
    # Job ids and names of logs have no characters that a header must quote.
    headers = {"Content-Disposition": f'attachment; filename="{job.job}.{name}"'}
    kind = "text/plain; charset=UTF-8"
    return StreamingResponse(logs_.stream(log), headers=headers, media_type=kind)


def _log_file(name: str, file: LogFile) -> dict[str, Any]:
    retained = {"penstock-begin": file.begin}
    return {"name": name, "size": file.size, "mtime": round(file.mtime * 1000), **retained}


def _number(call: Call, name: str, default: int) -> int:
    text = call.flag(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_NUMBER):
        raise RestError(400, f"{name} must be a number; got {text[:100]!r}")
    return int(text)


ALL_LOGS = Endpoint(
    "GET",
    "/jobmanager/logs",
    all_logs,
    "The logs of the jobs that were submitted to the server",
)
OWN_ENDPOINTS = [
    Endpoint("GET", "/jobmanager/logs/:logname", any_log, "A log of a submitted job"),
    Endpoint("GET", "/submissions/:jobid/logs", logs, "The logs of a submitted job"),
    Endpoint(
        "GET",
        "/submissions/:jobid/logs/:logname",
        log_piece,
        "A piece of a log, in JSON",
        query=("offset", "length"),
    ),
    Endpoint(
        "GET", "/submissions/:jobid/logs/:logname/download", download, "All that is kept of a log"
    ),
]
