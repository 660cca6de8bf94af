"""All calls about uploaded programs, submitted jobs and their logs."""

from __future__ import annotations

from penstock.serve.submission.calls import jobs, logs, programs

ENDPOINTS = [*programs.ENDPOINTS, logs.ALL_LOGS]
OWN_ENDPOINTS = [*jobs.ENDPOINTS, *logs.OWN_ENDPOINTS]
"""What Flink does not have, or does not describe."""
