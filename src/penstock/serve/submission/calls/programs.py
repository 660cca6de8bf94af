"""The calls about uploaded programs, as Flink's about JAR files."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import InvalidSubmissionError
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.rest.found_jobs import LONGEST_NUMBER
from penstock.serve.submission.calls.rest_errors import answering, submissions_of
from penstock.serve.submission.calls.waiting import waiting
from penstock.serve.submission.programs.plans import explain
from penstock.serve.submission.run_request import RunRequest, job_spec
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
    submissions_of(call).programs.delete(call.path["jarid"])
    return {}


@answering
@waiting
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
@waiting
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
    if parallelism is not None and not (
        parallelism.isascii() and parallelism.isdecimal() and len(parallelism) <= LONGEST_NUMBER
    ):
        reason = f"parallelism must be a number; got {parallelism[:100]!r}"
        raise InvalidSubmissionError(reason)
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
]
