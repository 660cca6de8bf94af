"""`penstock stop`, `cancel`, `savepoint` and `checkpoint trigger`: ask a running driver."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from penstock.checkpoint.job_dir import JobDir
from penstock.checkpoint.journal import Journal
from penstock.cli.exit_codes import ExitCode
from penstock.cli.figures import ago, duration
from penstock.cli.overview import Status, job_name, overview
from penstock.cli.settings import Given, directory_option, echo_json, job_at, json_option
from penstock.common.option_kinds import LOCAL_PATH
from penstock.recovery.control import (
    Answer,
    Cancel,
    Checkpoint,
    Control,
    Request,
    Savepoint,
    Stop,
)
from penstock.recovery.lease import Alive, Dead, Silent, standing
from penstock.savepoint.directory import dispose

__all__ = ["Conversation", "asking_options", "cancel", "savepoint", "stop", "trigger"]

F = TypeVar("F", bound=Callable[..., Any])

_POLL_S = 0.05
_SHOW_EVERY_S = 0.5


class Outcome(msgspec.Struct, frozen=True):
    """What became of a request, for machines."""

    job: str
    ok: bool
    message: str
    path: str | None = None
    status: Status | None = None
    """How the job stands, if it was asked to end."""


def asking_options(command: F) -> F:
    """Add what all commands have that ask a driver."""
    command = directory_option(json_option(command))
    return click.option(
        "--timeout", type=click.FloatRange(min=0), metavar="S", help="Seconds to wait; else no end."
    )(command)


@click.command()
@click.argument("job")
@click.option("--drain", is_flag=True, help="End as if all sources had come to their end.")
@click.option("-p", "--savepoint-path", metavar="DIR", help="Directory of the savepoint.")
@asking_options
def stop(
    job: str, drain: bool, savepoint_path: str | None, timeout: float | None, **where: Any
) -> None:
    """Write a savepoint and end JOB behind it.

    JOB is an id, a name, or the path of a job's directory. Waits until the job is over.
    """
    request = Stop(drain, _local(savepoint_path, "--savepoint-path"))
    _ask_to_end(job, request, timeout, **where)


@click.command()
@click.argument("job")
@asking_options
def cancel(job: str, timeout: float | None, **where: Any) -> None:
    """End JOB between micro-batches, without a savepoint.

    JOB is an id, a name, or the path of a job's directory. Waits until the job is over. Its
    checkpoints go with it, unless they are to be kept
    (execution.checkpointing.externalized-checkpoint-retention).
    """
    _ask_to_end(job, Cancel(), timeout, **where)


@click.command()
@click.argument("job", required=False)
@click.argument("directory_of_savepoint", metavar="[DIR]", required=False)
@click.option("--dispose", "disposed", metavar="PATH", help="Delete this savepoint instead.")
@asking_options
def savepoint(
    job: str | None,
    directory_of_savepoint: str | None,
    disposed: str | None,
    timeout: float | None,
    **where: Any,
) -> None:
    """Write a savepoint of JOB below DIR, or where the settings say; the job goes on.

    JOB is an id, a name, or the path of a job's directory.
    """
    if (job is None) == (disposed is None):
        msg = "give either JOB, or --dispose PATH"
        raise click.UsageError(msg)
    if disposed is not None:
        path = _local(disposed, "--dispose") or ""
        dispose(Path(path), where["directory"])
        _tell(Outcome("", True, "the savepoint is deleted", path), where["as_json"])
    if job is not None:
        request = Savepoint(_local(directory_of_savepoint, "DIR"))
        _ask_to_go_on(job, request, timeout, **where)


@click.command()
@click.argument("job")
@asking_options
def trigger(job: str, timeout: float | None, **where: Any) -> None:
    """Take a checkpoint of JOB now.

    JOB is an id, a name, or the path of a job's directory.
    """
    _ask_to_go_on(job, Checkpoint(), timeout, **where)


def _ask_to_go_on(
    job: str,
    request: Request,
    timeout: float | None,
    as_json: bool,
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
) -> None:
    place, given = job_at(job, defines, config, directory)
    answer = Conversation(place, given, timeout).ask(request)
    _tell(Outcome(place.key, answer.ok, answer.message, answer.path), as_json)


def _ask_to_end(
    job: str,
    request: Request,
    timeout: float | None,
    as_json: bool,
    directory: Path | None,
    defines: tuple[str, ...],
    config: Path | None,
) -> None:
    place, given = job_at(job, defines, config, directory)
    conversation = Conversation(place, given, timeout)
    answer = conversation.ask(request)
    if not answer.ok:
        _tell(Outcome(place.key, False, answer.message), as_json)
    status = conversation.await_end()
    message = f"job {job_name(place)!r} is {status}"
    kept = _kept_checkpoint(place) if isinstance(request, Cancel) else None
    wanted = status is Status.CANCELED if isinstance(request, Cancel) else status.is_over
    _tell(Outcome(place.key, wanted, message, answer.path or kept, status), as_json)


def _tell(outcome: Outcome, as_json: bool) -> None:
    """Print what became of a request, and end."""
    if as_json:
        echo_json(outcome)
    elif outcome.ok:
        click.echo(outcome.message)
        if outcome.path is not None:
            click.echo(outcome.path)
    else:
        click.echo(f"Error: {outcome.message}", err=True)
    sys.exit(ExitCode.DONE if outcome.ok else ExitCode.FAILED)


class Conversation:
    """One request to one driver, waited for with a line that tells how long it takes."""

    def __init__(self, job: JobDir, given: Given, timeout_s: float | None) -> None:
        self._job = job
        self._name = job_name(job)
        self._silence_s = given.heartbeat_timeout_s
        self._timeout_s = timeout_s
        self._asked = time.monotonic()
        self._shown = 0.0

    def ask(self, request: Request) -> Answer:
        """Ask and wait for the answer; what makes one impossible is answered here."""
        if (refusal := self._nobody_listens()) is not None:
            return Answer(False, refusal)
        control = Control(self._job)
        id_ = control.ask(request)
        while (answer := control.answer(id_)) is None:
            if self._is_too_late():
                message = (
                    f"no answer from job {self._name!r} in {duration(self._timeout_s or 0)}; "
                    "it may still do what was asked"
                )
                return Answer(False, message)
            gone = self._nobody_listens()
            # It may have answered and left in between.
            if gone is not None and (answer := control.answer(id_)) is None:
                return Answer(False, f"{gone}; it did not answer, so look before you ask again")
            if answer is None:
                self._wait("answer")
        self._clear()
        return answer

    def await_end(self) -> Status:
        """Wait until nobody drives the job any more; return how it stands then."""
        while not self._is_too_late() and isinstance(self._standing(), Alive):
            self._wait("end")
        self._clear()
        return overview(self._job, self._silence_s, time.time()).status

    def _nobody_listens(self) -> str | None:
        match self._standing():
            case Alive():
                return None
            case Dead(owner, since) | Silent(owner, since) as gone:
                dead = "died and " if isinstance(gone, Dead) else ""
                what = (
                    f"its driver (process {owner.pid} on {owner.host}) {dead}was last heard "
                    f"{ago(since, time.time())}"
                )
            case _:
                status = overview(self._job, self._silence_s, time.time()).status
                what = f"it is {status}"
        return f"nobody drives job {self._name!r}: {what}"

    def _standing(self) -> object:
        return standing(self._job, self._silence_s, time.time())

    def _is_too_late(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._asked > self._timeout_s

    def _wait(self, what: str) -> None:
        waited = time.monotonic() - self._asked
        if sys.stderr.isatty() and waited - self._shown >= _SHOW_EVERY_S:
            self._shown = waited
            click.echo(
                f"\r\033[Kwaiting for the {what} of job {self._name!r}: {duration(waited)}",
                err=True,
                nl=False,
            )
        time.sleep(_POLL_S)

    def _clear(self) -> None:
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
            self._shown = 0.0


def _kept_checkpoint(job: JobDir) -> str | None:
    kept = [c for c in Journal(job.storage, job.key).state().completed if not c.savepoint]
    return str(job.located(kept[-1].path)) if kept else None


def _local(path: str | None, hint: str) -> str | None:
    # The driver may work in another directory.
    if path is None:
        return None
    try:
        return str(LOCAL_PATH.parse(path))
    except ValueError:
        message = f"{path!r} is not {LOCAL_PATH.expected}"
        raise click.BadParameter(message, param_hint=hint) from None
