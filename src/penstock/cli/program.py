"""Runs a user's program as `python PROGRAM` would."""

from __future__ import annotations

import logging
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from penstock.common.pyflink.import_alias import installed_alias
from penstock.common.text.tolerant_json import decode_json
from penstock.datastream.stream_execution_environment import (
    StreamExecutionEnvironment,
    created_environments,
)
from penstock.errors import ConfigurationError, PyFlinkNotInstalledError
from penstock.redaction import redact

pyflink_option = click.option(
    "--pyflink", is_flag=True, help="Make imports of pyflink import penstock."
)


arguments_option = click.option(
    "--args-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="JSON list of further arguments, which do not appear in the list of processes.",
)


def arguments_in(file: Path | None) -> tuple[str, ...]:
    """Return the arguments in a file of --args-file.

    Raises:
        ConfigurationError: it is not a list of texts.
    """
    if file is None:
        return ()
    try:
        return tuple(decode_json(file.read_bytes(), list[str]))
    except msgspec.DecodeError as error:
        message = f"{file} is not a JSON list of texts, which --args-file needs: {error}"
        raise ConfigurationError(message) from error


def run_program(program: Path, args: tuple[str, ...]) -> None:
    """Run a program with its own arguments, and with its directory as the first on `sys.path`."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(program), *args]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        runpy.run_path(str(program), run_name="__main__")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "pyflink" and installed_alias() is None:
            raise PyFlinkNotInstalledError(str(program)) from error
        raise
    finally:
        sys.argv, sys.path[:] = argv, path


@contextmanager
def warning_about_forgotten_execute() -> Iterator[None]:
    """Print a warning if the program in this context builds a job that it never executes."""
    with created_environments() as environments:
        try:
            yield
        except SystemExit as end:
            if end.code in (None, 0):
                _warn(environments)
            raise
        _warn(environments)


def _warn(environments: Iterable[StreamExecutionEnvironment]) -> None:
    for environment in environments:
        if (last := environment.last_unexecuted_line()) is not None:
            click.echo(
                f"WARNING The program ends without executing the job that ends at {last}: add the "
                "line env.execute() after it",
                err=True,
            )


def user_traceback(error: BaseException, program: Path) -> str:
    """Return the traceback of an error from the program's first frame on, without credentials."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(program):
        frames = frames.tb_next
    return redact("".join(traceback.format_exception(type(error), error, frames)).rstrip())


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # A program that has configured logging gets these records through its own handlers.
        if not logging.getLogger().handlers:
            click.echo(self.format(record), err=True)


@contextmanager
def penstock_logs() -> Iterator[None]:
    """Log jobs and their checkpoints to stderr while a program runs."""
    penstock = logging.getLogger("penstock")
    loggers = [logging.getLogger(f"penstock.{name}") for name in ("job", "checkpoint", "recovery")]
    levels = [logger.level for logger in loggers]
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    penstock.addHandler(handler)
    for logger in loggers:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        penstock.removeHandler(handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
