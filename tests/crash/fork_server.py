"""Processes that begin with everything imported, which is half the time of one that dies soon.

Each is forked from a server that has only run imports, and is then as separate as any
other: a session, an environment and a log of its own, and killed by what kills processes.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.crash.pipeline", "tests.crash.windows_program"])


class Forked:
    """Calls `main` of a module with a path, in a process of its own; waited for like a Popen."""

    def __init__(
        self, program: str, argument: Path, cwd: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        is_ready, ready = _context.Pipe(duplex=False)
        given = program, argument, cwd, dict(environment), log, ready
        self._process = _context.Process(target=_run, args=given)
        self._process.start()
        ready.close()
        is_ready.recv()
        is_ready.close()
        self.pid = cast(int, self._process.pid)

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return how it ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self._process.exitcode


def _run(
    program: str,
    argument: Path,
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    ready: Connection,
) -> None:
    os.setsid()
    ready.send(None)
    ready.close()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    # What looks at the environment when it is imported has been imported already.
    importlib.import_module("penstock.crash_points").arm_from_environment(os.environ)
    code = importlib.import_module(program).main(argument)
    sys.exit(code)
