"""`penstock stop`, `cancel`, `savepoint` and `checkpoint trigger`."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from penstock.checkpoint.storage.job_dir import JobDir
from penstock.checkpoint.storage.journal import Journal
from penstock.checkpoint.storage.journal_entries import JournalState
from penstock.cli.exit_codes import ExitCode
from penstock.cli.options import (
    JOB_HELP,
    SelectedJob,
    as_path,
    as_sent_path,
    directory_options,
    job_argument,
    json_option,
    reached_with,
    settings_of,
    timeout_option,
)
from penstock.cli.output import echo
from penstock.cli.waiting import driver_of
from penstock.common.job_status import JobStatus
from penstock.common.storage_url import Location
from penstock.job.next_steps import next_step
from penstock.recovery.control import Cancel, Checkpoint, Request, Savepoint, Stop
from penstock.savepoint.directory import dispose
from penstock.storage.storage_options import storage_options


class Outcome(msgspec.Struct, frozen=True):
    """The result of a request, for --json."""

    job: str
    ok: bool
    message: str
    path: str | None = None
    status: str | None = None
    """The status of the job after a request to end it."""


@click.command()
@job_argument
@click.option("--drain", is_flag=True, help="End as if all sources had reached their end.")
@click.option(
    "-p",
    "--savepoint-path",
    callback=as_sent_path,
    metavar="DIR",
    help="Directory of the savepoint.",
)
@timeout_option
@json_option
def stop(
    job: SelectedJob,
    drain: bool,
    savepoint_path: Location | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Write a savepoint, then end JOB. Waits until the job has ended."""
    _end(job, Stop(drain, _text(savepoint_path)), timeout, as_json)


@click.command()
@job_argument
@timeout_option
@json_option
def cancel(job: SelectedJob, timeout: float | None, as_json: bool) -> None:
    """End JOB between micro-batches, without a savepoint. Waits until the job has ended.

    The checkpoints of the job are deleted, unless
    execution.checkpointing.externalized-checkpoint-retention keeps them.
    """
    _end(job, Cancel(), timeout, as_json)


@click.command(
    help=f"""Write a savepoint of JOB below DIR, or where the settings say; the job continues.

{JOB_HELP}
"""
)
@click.argument("job", required=False)
@click.argument("target", metavar="[DIR]", callback=as_sent_path, required=False)
@click.option(
    "--dispose",
    "disposed",
    callback=as_path,
    metavar="PATH",
    help="Delete this savepoint instead.",
)
@directory_options
@timeout_option
@json_option
def savepoint(
    job: str | None,
    target: Location | None,
    disposed: Location | None,
    directory: Location | None,
    defines: tuple[str, ...],
    config: Path | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Write or delete a savepoint."""
    if (job is None) == (disposed is None):
        msg = "give either JOB, or --dispose PATH"
        raise click.UsageError(msg)
    if disposed is not None:
        options = storage_options(settings_of(defines, config))
        place = None if directory is None else reached_with(options, directory)
        dispose(reached_with(options, disposed), place, options)
        _finish(Outcome("", True, "The savepoint is deleted.", str(disposed)), as_json)
    if job is not None:
        selected = SelectedJob.find(job, defines, config, directory)
        _request(selected, Savepoint(_text(target)), timeout, as_json)


@click.command()
@job_argument
@timeout_option
@json_option
def trigger(job: SelectedJob, timeout: float | None, as_json: bool) -> None:
    """Take a checkpoint of JOB now."""
    _request(job, Checkpoint(), timeout, as_json)


def _request(job: SelectedJob, request: Request, timeout: float | None, as_json: bool) -> None:
    with driver_of(job, timeout) as driver:
        answer = driver.request(request)
    _finish(Outcome(job.id, answer.ok, answer.message, answer.path), as_json)


def _end(job: SelectedJob, request: Request, timeout: float | None, as_json: bool) -> None:
    with driver_of(job, timeout) as driver:
        answer = driver.request(request)
        if not answer.ok:
            _finish(Outcome(job.id, False, answer.message), as_json)
        ended = driver.await_end()
    path, ok, what = answer.path, ended.is_over, ""
    if isinstance(request, Cancel):
        path, ok = _retained_checkpoint(job.directory), ended.status == JobStatus.CANCELED.name
        what = " and retains no checkpoint" if ok and path is None else ""
    message = f"Job {job.name!r} is {ended.status}{what}."
    facts = job.directory.read_facts()
    program = None if facts is None else facts.program
    step = next_step(_journal(job.directory), job.directory, program) if ok else None
    _finish(Outcome(job.id, ok, message, path, ended.status), as_json, step)


def _finish(outcome: Outcome, as_json: bool, step: str | None = None) -> None:
    """Print the result of a request and the next step; exit."""
    if as_json or outcome.ok:
        lines = [outcome.message, *([outcome.path] if outcome.path is not None else [])]
        echo(outcome, as_json, lambda: "\n".join(lines))
        if step is not None and not as_json:
            click.echo(f"Next: {step}.", err=True)
    else:
        click.echo(f"Error: {outcome.message}", err=True)
    sys.exit(ExitCode.DONE if outcome.ok else ExitCode.FAILED)


def _retained_checkpoint(job: JobDir) -> str | None:
    """Return the newest checkpoint that the run retains; one that it was restored from is not."""
    retained = [c for c in _journal(job).restorable if not c.savepoint]
    return str(job.from_journal_path(retained[-1].path)) if retained else None


def _text(path: Location | None) -> str | None:
    return None if path is None else str(path)


def _journal(job: JobDir) -> JournalState:
    return Journal(job.storage, job.key).state()
