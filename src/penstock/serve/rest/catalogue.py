"""All calls of Flink's REST API, those that are not supported included."""

from __future__ import annotations

from penstock.serve.http.calls import Endpoint
from penstock.serve.queryable import endpoints as queryable
from penstock.serve.rest import (
    accumulators,
    checkpoints,
    cluster,
    disposal,
    exceptions,
    job_managers,
    jobs,
    metrics,
    task_managers,
    triggers,
    unsupported,
    vertices,
)
from penstock.serve.submission import endpoints as submission

SUPPORTED: tuple[Endpoint, ...] = (
    *cluster.ENDPOINTS,
    *jobs.ENDPOINTS,
    *exceptions.ENDPOINTS,
    *checkpoints.ENDPOINTS,
    *triggers.ENDPOINTS,
    *disposal.ENDPOINTS,
    *vertices.ENDPOINTS,
    *metrics.ENDPOINTS,
    *accumulators.ENDPOINTS,
    *task_managers.ENDPOINTS,
    *job_managers.ENDPOINTS,
    *submission.ENDPOINTS,
)
OWN: tuple[Endpoint, ...] = (*submission.OWN_ENDPOINTS, *queryable.ENDPOINTS)
"""Calls that Flink does not have."""
UNSUPPORTED: tuple[Endpoint, ...] = tuple(unsupported.ENDPOINTS)
