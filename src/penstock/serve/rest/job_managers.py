"""Job managers: the server for the cluster as a whole, and the driver of each job."""

from __future__ import annotations

import platform
import sys
from typing import Any

from penstock import __version__
from penstock.recovery.lease import Alive
from penstock.serve.http.calls import Call, Endpoint
from penstock.serve.rest.found_jobs import job_of
from penstock.serve.rest.metrics import selected
from penstock.serve.rest.task_managers import slots


def config(call: Call) -> list[dict[str, str]]:
    """Return the settings of the server, without credentials."""
    settings = call.context.settings
    values = {
        "execution.checkpointing.dir": str(settings.directory),
        "heartbeat.timeout": f"{settings.heartbeat_timeout_s:g} s",
        "rest.address": settings.host,
        "rest.port": str(settings.port),
    }
    if settings.savepoint_directory is not None:
        values["execution.checkpointing.savepoint-dir"] = str(settings.savepoint_directory)
    return _entries(values)


def environment(call: Call) -> dict[str, Any]:
    """Return what the server runs on."""
    version = f"penstock {__version__}, Python {platform.python_version()}"
    return _environment(version, platform.machine(), [])


def metrics(call: Call) -> list[dict[str, str]]:
    """Return metrics of the cluster."""
    jobs = call.context.jobs.jobs()
    managers, total, free = slots(call)
    values = {
        "numRunningJobs": sum(isinstance(job.driver, Alive) for job in jobs),
        "numRegisteredTaskManagers": managers,
        "taskSlotsTotal": total,
        "taskSlotsAvailable": free,
    }
    return selected(call, values)


def job_config(call: Call) -> list[dict[str, str]]:
    """Return the settings of a job, without credentials."""
    _, job = job_of(call)
    return _entries({} if job.facts is None else job.facts.settings)


def job_environment(call: Call) -> dict[str, Any]:
    """Return what the driver of a job runs on."""
    _, job = job_of(call)
    facts = job.facts
    if facts is None:
        return _environment("", "", [])
    versions = {name: value for name, value in facts.versions.items() if name != "architecture"}
    text = ", ".join(f"{name} {value}" for name, value in versions.items())
    command = [facts.program or "", *facts.args]
    return _environment(text, facts.versions.get("architecture", ""), command)


def _entries(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in sorted(values.items())]


def _environment(version: str, architecture: str, command: list[str]) -> dict[str, Any]:
    return {
        "jvm": {"version": version, "arch": architecture, "options": command},
        "classpath": [] if command else [path for path in sys.path if path.endswith("packages")],
    }


ENDPOINTS = [
    Endpoint("GET", "/jobmanager/config", config, "The settings of the server"),
    Endpoint("GET", "/jobmanager/environment", environment, "What the server runs on"),
    Endpoint("GET", "/jobmanager/metrics", metrics, "Metrics of the cluster", query=("get",)),
    Endpoint("GET", "/jobs/:jobid/jobmanager/config", job_config, "The settings of a job"),
    Endpoint(
        "GET",
        "/jobs/:jobid/jobmanager/environment",
        job_environment,
        "What the driver of a job runs on",
    ),
]
