"""All calls about uploaded programs, submitted jobs and their logs."""

from __future__ import annotations

from penstock.serve.submission import calls_of_jobs, calls_of_logs, calls_of_programs

ENDPOINTS = [*calls_of_programs.ENDPOINTS, calls_of_logs.ALL_LOGS]
OWN_ENDPOINTS = [*calls_of_jobs.ENDPOINTS, *calls_of_logs.OWN_ENDPOINTS]
"""What Flink does not have, or does not describe."""
