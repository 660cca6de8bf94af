"""The calls about uploaded programs, as Flink's about JAR files, and about submitted jobs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from penstock.errors import UnknownProgramError
from penstock.serve.http.answers import RestError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.hex_ids import hex_id, is_hex_id
from penstock.serve.submission.logs import MOST_BYTES
from penstock.serve.submission.programs.plans import explain
from penstock.serve.submission.records import SubmissionDir
from penstock.serve.submission.rest_errors import answering, submissions_of
from penstock.serve.submission.run_request import RunRequest, job_spec
from penstock.serve.submission.start_status import StartStatus, status_of
from penstock.serve.submission.submissions import Submissions
from penstock.serve.submission.uploads import UPLOAD_PATH, upload

_ENTRY = {"name": "__main__", "description": None}
_IF = ", with `--submission`"
_QUERY = (
    "entry-class",
    "programArg",
    "parallelism",
    "savepointPath",
    "allowNonRestoredState",
)
_PROGRAMS_AT_ONCE = 8
_running = threading.BoundedSemaphore(_PROGRAMS_AT_ONCE)
"""Calls that wait for a program: the others must not wait for them."""

Answer = TypeVar("Answer")


def _waiting(function: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Refuse a call if many wait for programs already."""

    @functools.wraps(function)
    def wrapped(call: Call) -> Answer:
        if not _running.acquire(blocking=False):
            raise RestError(503, "Too many programs are being started; try again later")
        try:
            return function(call)
        finally:
            _running.release()

    return wrapped


# -- programs -----------------------------------------------------------------------------------


@answering
def programs(call: Call) -> dict[str, Any]:
    """Return the uploaded programs."""
    settings = call.context.settings
    return {
        "address": f"http://{settings.host}:{settings.port}",
        "files": [
            {
                "id": program.id,
                "name": program.name,
                "uploaded": round(program.uploaded * 1000),
                "entry": [_ENTRY],
            }
            for program in submissions_of(call).programs.list()
        ],
    }


@answering
def delete_program(call: Call) -> dict[str, Any]:
    """Delete an uploaded program; jobs have copies of their own."""
    try:
        submissions_of(call).programs.delete(call.path["jarid"])
    except UnknownProgramError as error:
        raise RestError(400, str(error)) from error  # Flink's status
    return {}


@answering
@_waiting
def run(call: Call) -> dict[str, Any]:
    """Run a program, and wait until its job has started."""
    submissions = submissions_of(call)
    request = _request(call)
    program = submissions.programs.find(call.path["jarid"])
    settings = submissions.settings
    spec = job_spec(request, settings.directory, settings.job_settings)
    start = submissions.submit(program, spec, request.entry_class)
    submissions.await_job(submissions.find(spec.job), start)
    return {"jobid": hex_id(spec.job), "penstock-id": spec.job}


@answering
@_waiting
def plan(call: Call) -> dict[str, Any]:
    """Return the plan of a program, which runs for that until it calls execute()."""
    submissions = submissions_of(call)
    request = _request(call)
    program = submissions.programs.find(call.path["jarid"])
    found = explain(submissions.programs, program, request.arguments, request.entry_class)
    return {"plan": found}


def _request(call: Call) -> RunRequest:
    """Return the request in the body; what it does not say may be in the query, as in Flink."""
    request = RunRequest.parse(call.body)
    parallelism = call.flag("parallelism")
    if parallelism is not None and not (parallelism.isascii() and parallelism.isdecimal()):
        raise RestError(400, f"parallelism must be a number; got {parallelism[:100]!r}")
    allowed = call.flag("allowNonRestoredState")
    in_query: dict[str, Any] = {
        "entry_class": call.flag("entry-class"),
        "program_args_list": call.names("programArg"),
        "program_args": call.flag("program-args"),
        "parallelism": None if parallelism is None else int(parallelism),
        "allow_non_restored_state": None if allowed is None else allowed == "true",
        "savepoint_path": call.flag("savepointPath"),
    }
    missing = {
        name: value
        for name, value in in_query.items()
        if value is not None and getattr(request, name) is None
    }
    return msgspec.structs.replace(request, **missing)


# -- submitted jobs -----------------------------------------------------------------------------


class RestartRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of a request to start a job again."""

    savepoint_path: str | None = None
    fresh: bool = False


def _found(call: Call) -> SubmissionDir:
    """Return the submitted job in the path of a call, by its id, ours or Flink's."""
    submissions, id_ = submissions_of(call), call.path["jobid"]
    if is_hex_id(id_):
        for job in submissions.jobs():
            if hex_id(job.job) == id_:
                return job
    return submissions.find(id_)


@answering
def submitted(call: Call) -> dict[str, Any]:
    """Return all submitted jobs."""
    submissions = submissions_of(call)
    return {"submissions": [_shown(submissions, job) for job in submissions.jobs()]}


@answering
def submitted_job(call: Call) -> dict[str, Any]:
    """Return a submitted job with its starts."""
    job = _found(call)
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
@_waiting
def restart(call: Call) -> dict[str, Any]:
    """Start a job again that has ended or died, and wait until it has started."""
    submissions, job = submissions_of(call), _found(call)
    request = call.json(RestartRequest)
    start = submissions.restart(job, path=request.savepoint_path, fresh=request.fresh)
    submissions.await_job(job, start)
    return {"jobid": hex_id(job.job), "penstock-id": job.job, "start": start.number}


@answering
def suspend(call: Call) -> dict[str, Any]:
    """End the process of a job between micro-batches, also one that has not started its job yet."""
    submissions, job = submissions_of(call), _found(call)
    if not submissions.suspend(job):
        raise RestError(409, f"Job {job.job} has no process of this server")
    return {}


@answering
def delete_submission(call: Call) -> dict[str, Any]:
    """Delete the record and the logs of a job that does not run; its checkpoints stay."""
    submissions_of(call).delete(_found(call))
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


# -- logs ---------------------------------------------------------------------------------------


@answering
def logs(call: Call) -> dict[str, Any]:
    """Return the logs of a submitted job, the newest first."""
    files = submissions_of(call).logs(_found(call).job).files()
    return {"logs": [_log_file(file.name, file) for file in files]}


@answering
def log_piece(call: Call) -> Any:
    """Return a piece of a log from an offset; a negative one counts from the end."""
    job = submissions_of(call).logs(_found(call).job)
    log = job.find(call.path["logname"])
    if log is None:
        raise RestError(404, f"Log {call.path['logname']} not found")
    return job.read(log, _number(call, "offset", 0), _number(call, "length", MOST_BYTES))


@answering
def download(call: Call) -> Response:
    """Return everything that is retained of a log."""
    return _download(call, _found(call), call.path["logname"])


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


def _log_file(name: str, file: Any) -> dict[str, Any]:
    retained = {"penstock-begin": file.begin}
    return {"name": name, "size": file.size, "mtime": round(file.mtime * 1000), **retained}


def _number(call: Call, name: str, default: int) -> int:
    text = call.flag(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise RestError(400, f"{name} must be a number; got {text[:100]!r}")
    return int(text)


ENDPOINTS = [
    Endpoint("GET", "/jars", programs, f"The uploaded programs{_IF}"),
    Endpoint("POST", UPLOAD_PATH, upload, f"Upload a program{_IF}"),
    Endpoint("DELETE", "/jars/:jarid", delete_program, f"Delete an uploaded program{_IF}"),
    Endpoint(
        "GET",
        "/jars/:jarid/plan",
        plan,
        f"The plan of a program{_IF}",
        query=_QUERY,
        only_operators=True,
    ),
    Endpoint(
        "POST",
        "/jars/:jarid/plan",
        plan,
        f"The plan of a program{_IF}",
        query=_QUERY,
        body=RunRequest,
    ),
    Endpoint(
        "POST",
        "/jars/:jarid/run",
        run,
        f"Run a program as a job{_IF}",
        query=_QUERY,
        body=RunRequest,
    ),
    Endpoint(
        "GET",
        "/jobmanager/logs",
        all_logs,
        "The logs of the jobs that were submitted to the server",
    ),
]
OWN_ENDPOINTS = [
    Endpoint("GET", "/jobmanager/logs/:logname", any_log, "A log of a submitted job"),
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
"""What Flink does not have, or does not describe."""
