"""Advice on the checkpoint interval of a job: the models, fitted to its history."""

from __future__ import annotations

import time
from typing import Any

from penstock.serve.http.calls import Call
from penstock.serve.rest.found_jobs import job_of


def advice(call: Call) -> dict[str, Any]:
    """Return no advice: the models are missing."""
    job_of(call)
    return {"now": time.time(), "goals": {}, "advice": None, "problem": "There are no models yet."}
