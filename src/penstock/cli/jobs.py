"""`penstock list`: the jobs of a checkpoint directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from penstock.checkpoint.job_dir import jobs_in
from penstock.cli.figures import ago, clock, size
from penstock.cli.overview import JobOverview, overview
from penstock.cli.settings import Given, directory_option, echo_json, json_option
from penstock.cli.tables import table

__all__ = ["list_jobs"]

_HEADS = ("ID", "NAME", "STATUS", "DRIVER", "ATTEMPTS", "LAST CHECKPOINT", "STARTED")


_STATUSES = """\b
RUNNING    a driver works on it
DIED       its driver is dead or silent; started again, it goes on
SUSPENDED  ended by Ctrl-C; started again, it goes on
FAILED     given up by its restart strategy; started again, it goes on
FINISHED, CANCELED, STOPPED (with a savepoint)
           it is over; shown with --all
DAMAGED    its journal cannot be read
"""


@click.command("list", epilog=_STATUSES)
@directory_option
@click.option("-a", "--all", "show_all", is_flag=True, help="Also those that are over.")
@json_option
def list_jobs(
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
    show_all: bool,
    as_json: bool,
) -> None:
    """List the jobs that a checkpoint directory holds."""
    given = Given.read(defines, config, directory)
    now = time.time()
    found = [overview(job, given.heartbeat_timeout_s, now) for job in jobs_in(given.directory)]
    shown = [job for job in found if show_all or not job.status.is_over]
    if as_json:
        echo_json(shown)
        return
    if shown:
        click.echo(table(_HEADS, [_row(job, now) for job in shown], numbers=("ATTEMPTS",)))
    else:
        click.echo(f"no jobs in {given.directory}")
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown)} more that are over: --all shows them")


def _row(job: JobOverview, now: float) -> tuple[str, ...]:
    last = job.last_checkpoint
    return (
        job.id,
        job.name,
        job.status,
        "-" if job.driver is None else f"{job.driver.host}:{job.driver.pid}",
        str(job.attempts),
        "-" if last is None else f"{last.id}, {ago(last.completed, now)}, {size(last.full_bytes)}",
        "-" if job.started is None else clock(job.started),
    )
