"""`GET /metrics`: the metrics of all running jobs, for Prometheus."""

from __future__ import annotations

import time

from starlette.responses import Response

from penstock.recovery.lease import Alive
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.jobs.hex_ids import hex_id
from penstock.serve.prometheus.samples import JobSnapshot
from penstock.serve.prometheus.text import CONTENT_TYPE, render

_WAIT_S = 3.0
"""For the first figures of drivers that nobody has watched before, all together."""


def scrape(call: Call) -> Response:
    """Return the figures of all jobs whose drivers report."""
    running = [job for job in call.context.jobs.jobs() if isinstance(job.driver, Alive)]
    live = call.context.live
    for job in running:
        live.of(job)  # asks all drivers before the first wait
    deadline = time.monotonic() + _WAIT_S
    found = [(job, live.of(job, max(0.0, deadline - time.monotonic()))) for job in running]
    snapshots = [
        JobSnapshot(hex_id(job.overview.id), job.overview.name, seen.figures)
        for job, seen in found
        if seen.figures is not None and not seen.is_stale
    ]
    return Response(render(snapshots), media_type=CONTENT_TYPE)


ENDPOINT = Endpoint("GET", "/metrics", scrape, "The metrics of all running jobs, for Prometheus")
