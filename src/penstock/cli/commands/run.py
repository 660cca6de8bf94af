"""`penstock run`: runs a program, in this process or under a supervisor."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from penstock.cli.exit_codes import EXIT_CODES, ExitCode
from penstock.cli.options import as_sent_path, overrides_of, settings_options
from penstock.cli.program import (
    arguments_in,
    arguments_option,
    penstock_logs,
    pyflink_option,
    run_program,
    user_traceback,
    warning_about_forgotten_execute,
)
from penstock.common.config.checkpoint_options import (
    CLAIM_MODE,
    FRESH,
    IGNORE_UNCLAIMED_STATE,
    JOB_ID,
    RESTORE_PATH,
)
from penstock.common.config.configuration_file import global_configuration, set_global_overrides
from penstock.common.config.known_options import PARALLELISM, overlay
from penstock.common.configuration import Configuration
from penstock.common.pyflink.import_alias import use_pyflink_names
from penstock.common.storage_url import Location
from penstock.errors import PenstockError
from penstock.job.job_result import reporting_results
from penstock.recovery.supervisor import Supervisor, report_to_supervisor


@click.command(context_settings={"allow_interspersed_args": False}, epilog=EXIT_CODES)
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@settings_options
@click.option(
    "-s",
    "--from-savepoint",
    callback=as_sent_path,
    metavar="PATH",
    help="Start from a savepoint or a checkpoint.",
)
@click.option(
    "-n",
    "--allow-non-restored-state",
    is_flag=True,
    help="Drop the state of steps that the program no longer has.",
)
@click.option(
    "--claim-mode",
    type=click.Choice(["NO_CLAIM", "CLAIM"], case_sensitive=False),
    metavar="[NO_CLAIM|CLAIM]",
    help="NO_CLAIM: the job never deletes what it starts from. CLAIM: it may.",
)
@click.option("--fresh", is_flag=True, help="Start from the beginning; ignore checkpoints.")
@click.option("--job-id", help="Id of the job; by default made from its name.")
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")
@click.option("--supervise", is_flag=True, help="Start the program again when it dies.")
@arguments_option
@pyflink_option
def run(
    job: Path,
    args: tuple[str, ...],
    defines: tuple[str, ...],
    config: Path | None,
    from_savepoint: Location | None,
    allow_non_restored_state: bool,
    claim_mode: str | None,
    fresh: bool,
    job_id: str | None,
    parallelism: int | None,
    supervise: bool,
    args_file: Path | None,
    pyflink: bool,
) -> None:
    """Run the program JOB with ARGS.

    A job that died resumes from its newest checkpoint. Settings of the program win over these
    options, as in Flink. Ctrl-C suspends the job after the running micro-batches, and it can be
    resumed; a second Ctrl-C ends it at once.
    """
    flags = {
        RESTORE_PATH.key: None if from_savepoint is None else str(from_savepoint),
        IGNORE_UNCLAIMED_STATE.key: "true" if allow_non_restored_state else None,
        CLAIM_MODE.key: claim_mode,
        FRESH.key: "true" if fresh else None,
        JOB_ID.key: job_id,
        PARALLELISM.key: None if parallelism is None else str(parallelism),
    }
    defines += tuple(f"{key}={value}" for key, value in flags.items() if value is not None)
    overrides = overrides_of(defines, config)
    if supervise:
        command = child_command(job, args, defines, config, args_file=args_file, pyflink=pyflink)
        sys.exit(_supervise(command, overrides))
    if pyflink:
        use_pyflink_names()
    sys.exit(_run_here(job, (*args, *arguments_in(args_file)), overrides))


def child_command(
    job: Path,
    args: Sequence[str],
    defines: Sequence[str],
    config: Path | None,
    *,
    args_file: Path | None = None,
    pyflink: bool = False,
) -> list[str]:
    """Return the command with which a supervisor starts the driver."""
    settings = [] if config is None else ["-c", str(config)]
    settings += [word for define in defines for word in ("-D", define)]
    settings += [] if args_file is None else ["--args-file", str(args_file)]
    settings += ["--pyflink"] if pyflink else []
    return [sys.executable, "-m", "penstock.cli.main", "run", *settings, "--", str(job), *args]


def _supervise(command: Sequence[str], overrides: Configuration) -> int:
    configuration = global_configuration()
    overlay(configuration, overrides)
    return Supervisor.configured(command, configuration).run()


def _run_here(job: Path, args: tuple[str, ...], overrides: Configuration) -> int:
    report_to_supervisor()
    set_global_overrides(overrides.to_dict())
    with _sigterm_as_ctrl_c() as terminated, penstock_logs():
        try:
            with reporting_results(), warning_about_forgotten_execute():
                run_program(job, args)
        except KeyboardInterrupt:
            return ExitCode.TERMINATED if terminated.is_set() else ExitCode.INTERRUPTED
        except PenstockError:
            raise
        except Exception as error:
            click.echo(user_traceback(error, job), err=True)
            return ExitCode.FAILED
        finally:
            set_global_overrides({})
    return ExitCode.DONE


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[threading.Event]:
    """Handle SIGTERM like Ctrl-C; the event is set when it arrived."""
    terminated = threading.Event()

    def terminate(number: int, frame: FrameType | None) -> None:
        terminated.set()
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield terminated
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, before)
