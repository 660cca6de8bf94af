"""The cluster: overview and configuration of the server."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from penstock import __version__
from penstock.serve.flink_json.statuses import flink_status
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.http.tokens import Role
from penstock.serve.rest.task_managers import slots

FLINK_VERSION = "2.4"
"""The version of Flink whose API this is."""
_REFRESH_MS = 1000


def overview(call: Call) -> dict[str, Any]:
    """Return how many jobs there are in which state."""
    statuses = Counter(flink_status(job) for job in call.context.jobs.jobs())
    ended = statuses["FINISHED"], statuses["CANCELED"], statuses["FAILED"]
    managers, total, free = slots(call)
    return {
        "taskmanagers": managers,
        "slots-total": total,
        "slots-available": free,
        "taskmanagers-blocked": 0,
        "slots-free-and-blocked": 0,
        "jobs-running": statuses.total() - sum(ended) - statuses["SUSPENDED"],
        "jobs-finished": ended[0],
        "jobs-cancelled": ended[1],
        "jobs-failed": ended[2],
        "flink-version": FLINK_VERSION,
        "flink-commit": f"penstock {__version__}",
        "penstock-jobs-suspended": statuses["SUSPENDED"],
        "penstock-version": __version__,
        "penstock-directory": str(call.context.jobs.directory),
    }


def config(call: Call) -> dict[str, Any]:
    """Return what a dashboard needs to know of the server, and of who looks at it."""
    here = time.localtime()
    controls = call.role is Role.OPERATOR
    return {
        "refresh-interval": _REFRESH_MS,
        "timezone-name": here.tm_zone or "UTC",
        "timezone-offset": here.tm_gmtoff * 1000,
        "flink-version": FLINK_VERSION,
        "flink-revision": f"penstock {__version__}",
        "penstock-version": __version__,
        "penstock-role": call.role.name.lower(),
        "penstock-needs-token": call.context.settings.tokens is not None,
        "features": {
            "web-submit": controls and call.context.submissions is not None,
            "web-cancel": controls,
            "web-rescale": False,
            "web-history": False,
        },
    }


ENDPOINTS = [
    Endpoint("GET", "/overview", overview, "How many jobs, task managers and slots there are"),
    Endpoint("GET", "/config", config, "Settings for a dashboard"),
]
