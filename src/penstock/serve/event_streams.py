"""`GET /events`: the list of jobs, and one job, as server-sent events."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from penstock.serve.context import ServerContext
from penstock.serve.events import JOBS, TooManyStreamsError
from penstock.serve.http.answers import error_answer
from penstock.serve.rest.jobs import detail_of, overview_of

_OF_NOW = ("now", "duration")
"""Fields that change with every second; readers compute them."""
_RETRY_S = "5"


async def events(request: Request, context: ServerContext) -> Response:
    """Open a stream of the list of jobs (`jobs`) and, with `?job=ID`, of that job (`job`)."""
    if request.method != "GET":
        # There is nothing to send after the head, and it would never end.
        return error_answer(405, None, {"Allow": "GET", "Connection": "close"})
    job = request.query_params.get("job")
    topics = [JOBS] if job is None else [JOBS, f"job:{job}"]
    if job is not None and ("\n" in job or "\r" in job):
        return error_answer(400, "a job's id has no line breaks")
    if job is not None and await to_thread.run_sync(context.jobs.find, job) is None:
        return error_answer(404, f"Job {job} not found", {"Connection": "close"})
    try:
        return context.events.open(topics, lambda topic: state_of(context, topic))
    except TooManyStreamsError:
        message = "Too many event streams are open; try again later, or ask for /jobs/overview"
        return error_answer(503, message, {"Retry-After": _RETRY_S, "Connection": "close"})


def state_of(context: ServerContext, topic: str) -> dict[str, Any] | None:
    """Return what a stream sends of a topic; None for a job that does not exist."""
    if topic == JOBS:
        jobs = context.jobs.jobs()
        return {"jobs": [_lasting(overview_of(j, context.live.of(j), 0.0)) for j in jobs]}
    found = context.jobs.find(topic.partition(":")[2])
    if found is None:
        return None
    return _lasting(detail_of(found[1], context.live.of(found[1]), 0.0))


def _lasting(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OF_NOW}
