"""A user's program, run as `python PROGRAM` would."""

from __future__ import annotations

import logging
import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

__all__ = ["penstock_logs", "pyflink_option", "run_program", "user_traceback"]

pyflink_option = click.option(
    "--pyflink", is_flag=True, help="Let the program's imports of pyflink mean penstock."
)


def run_program(program: Path, args: tuple[str, ...]) -> None:
    """Run a program with its own arguments and its own directory to import from.

    Whatever it raises is raised.
    """
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(program), *args]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path


def user_traceback(error: BaseException, program: Path) -> str:
    """Return an error as Python shows it, from the program's own first frame on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(program):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


class _ToStderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # A program that has set up logging itself shows these lines its own way.
        if not logging.getLogger().handlers:
            click.echo(self.format(record), err=True)


@contextmanager
def penstock_logs() -> Iterator[None]:
    """Show on stderr what happens to jobs and their checkpoints, while a program runs."""
    penstock = logging.getLogger("penstock")
    told = [logging.getLogger(f"penstock.{room}") for room in ("job", "checkpoint", "recovery")]
    levels = [logger.level for logger in told]
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    penstock.addHandler(handler)
    for logger in told:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        penstock.removeHandler(handler)
        for logger, level in zip(told, levels, strict=True):
            logger.setLevel(level)
