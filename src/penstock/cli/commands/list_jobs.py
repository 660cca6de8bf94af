"""`penstock list`: the jobs of a checkpoint directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from penstock.checkpoint.storage.job_dir import inaccessible_in, jobs_in
from penstock.cli.options import CommandSettings, directory_options, json_option
from penstock.cli.output import ago, clock, echo, size, table, warn_unreadable
from penstock.client.job_overview import JobOverview, overview
from penstock.common.storage_url import Location

_STATUSES = """\b
INITIALIZING
           a driver is starting it; requests to it wait until it runs
RUNNING    a driver is running it
DIED       its driver is dead or silent; started again, it resumes
SUSPENDED  ended by Ctrl-C; started again, it resumes
FAILED     given up by its restart strategy; started again, it resumes
FINISHED, CANCELED, STOPPED (with a savepoint)
           ended; shown with --all
DAMAGED    its journal cannot be read
"""


@click.command("list", epilog=_STATUSES)
@directory_options
@click.option("-a", "--all", "show_all", is_flag=True, help="Also jobs that have ended.")
@json_option
def list_jobs(
    directory: Location | None,
    defines: tuple[str, ...],
    config: Path | None,
    show_all: bool,
    as_json: bool,
) -> None:
    """List the jobs in a checkpoint directory."""
    settings = CommandSettings.read(defines, config, directory)
    now = time.time()
    timeout_s = settings.heartbeat_timeout_s
    found = [overview(job, timeout_s, now) for job in jobs_in(settings.directory)]
    shown = [job for job in found if show_all or not job.is_over]

    def text() -> str:
        lines = [f"No jobs in {settings.directory}."]
        if shown:
            lines = [table([_row(job, now) for job in shown], numbers=("ATTEMPTS",))]
        if len(shown) < len(found):
            lines.append(f"{len(found) - len(shown)} more have ended: --all shows them.")
        return "\n".join(lines)

    echo(shown, as_json, text)
    for job in shown:
        warn_unreadable(job.path, job.unreadable)
    warn_unreadable(str(settings.directory), inaccessible_in(settings.directory))


def _row(job: JobOverview, now: float) -> dict[str, str]:
    last = "-"
    if (checkpoint := job.last_checkpoint) is not None:
        what = "discarded" if checkpoint.discarded else size(checkpoint.full_bytes)
        last = f"{checkpoint.id}, {ago(checkpoint.completed, now)}, {what}"
    return {
        "ID": job.id,
        "NAME": job.name,
        "STATUS": job.status,
        "DRIVER": "-" if job.driver is None else f"{job.driver.host}:{job.driver.pid}",
        "ATTEMPTS": str(job.attempts),
        "LAST CHECKPOINT": last,
        "STARTED": "-" if job.started is None else clock(job.started),
    }
