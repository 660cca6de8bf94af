"""The calls of the dashboard."""

from __future__ import annotations

from penstock.serve.dashboard import (
    advice_page,
    attempt_pages,
    changes_page,
    checkpoint_pages,
    job_pages,
    state_page,
)
from penstock.serve.http.calls import Endpoint

_JOB = "/penstock/jobs/:jobid"

ENDPOINTS = [
    Endpoint("GET", "/penstock/jobs", job_pages.job_list, "All jobs, as the dashboard lists them"),
    Endpoint("GET", _JOB, job_pages.job_overview, "One job: graph, live figures, what is new"),
    Endpoint(
        "GET",
        f"{_JOB}/checkpoints",
        checkpoint_pages.checkpoint_list,
        "The checkpoints in the history, with counts and settings",
    ),
    Endpoint(
        "GET",
        f"{_JOB}/checkpoints/:checkpointid",
        checkpoint_pages.one_checkpoint,
        "One checkpoint: times by subtask, and its event log",
    ),
    Endpoint(
        "GET",
        f"{_JOB}/attempts",
        attempt_pages.attempt_list,
        "The attempts, each with its recovery and its failures",
    ),
    Endpoint(
        "GET",
        f"{_JOB}/state",
        state_page.newest_state,
        "The states in the newest checkpoint, with sizes by key group",
    ),
    Endpoint(
        "GET",
        f"{_JOB}/state/changes",
        changes_page.state_changes,
        "The checkpoints that can be compared, and what changed between two of them",
        query=("from", "to"),
    ),
    Endpoint(
        "GET",
        f"{_JOB}/advice",
        advice_page.advice,
        "Which checkpoint interval fits the goals",
        query=("recovery_target", "visibility", "overhead", "failures_per_day"),
    ),
]
