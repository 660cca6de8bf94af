"""The exit codes of the commands."""

from __future__ import annotations

from enum import IntEnum

from penstock.errors import (
    AmbiguousJobError,
    ConfigurationError,
    JobAlreadyRunningError,
    PenstockError,
    StoppedJobError,
    UnknownJobError,
)


class ExitCode(IntEnum):
    """How a command ended; docs/command-line.md has the same table."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    DIFFERENT = 4
    INTERRUPTED = 130
    TERMINATED = 143


EXIT_CODES = """\b
Exit codes:
    0  done
    1  the job or the request failed
    2  wrong usage or configuration
    3  refused: the job is already running, or was stopped with a savepoint
    4  something changed (state diff --exit-code)
  130  ended by Ctrl-C
  143  ended by SIGTERM
"""

_WRONG_USAGE = (ConfigurationError, UnknownJobError, AmbiguousJobError)


def exit_code_of(error: PenstockError) -> ExitCode:
    """Return the exit code for an error."""
    if isinstance(error, JobAlreadyRunningError | StoppedJobError):
        return ExitCode.REFUSED
    return ExitCode.USAGE if isinstance(error, _WRONG_USAGE) else ExitCode.FAILED
