"""Starts the processes of submitted jobs, detached from the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from penstock.errors import ProcessNotStartedError
from penstock.recovery.lease import is_running_here
from penstock.serve.submission.orphans import drivers_left_by
from penstock.serve.submission.records import StartDir, StartEnd, StartProcess, SubmissionDir

_OWNER_ONLY = 0o600
_FAILED = 1
_OF_THE_SERVER = "PENSTOCK_SERVE_"
"""Variables that hold what only the server may know, such as its tokens."""


class Processes:
    """The processes that this server has started; any thread may call.

    Each leads a session of its own and writes into files, so that it needs nothing of the server.
    """

    def __init__(self, max_log_bytes: int) -> None:
        self._max_log_bytes = max_log_bytes
        self.lock = threading.Lock()
        """Held while the files of a start are written here, or its directory gets another name."""
        self._children: dict[StartDir, subprocess.Popen[bytes]] = {}

    def start(self, job: SubmissionDir, start: StartDir) -> None:
        """Start the process of a start that was requested; may be repeated.

        Of several processes for the same start all but one end at once.

        Raises:
            ProcessNotStartedError: the system refuses it.
        """
        try:
            child = self._child(job, start)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ProcessNotStartedError(job.job, reason) from error
        with self.lock:
            self._children[start] = child

    def _child(self, job: SubmissionDir, start: StartDir) -> subprocess.Popen[bytes]:
        module = "penstock.serve.submission.job_process"
        command = [sys.executable, "-m", module, str(job.path), str(start.number)]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open(start.log, flags, _OWNER_ONLY)
        try:
            return subprocess.Popen(
                [*command, str(self._max_log_bytes)],
                cwd=job.work,
                env=environment_of_jobs(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(log)

    def reap(self) -> None:
        """Forget the processes that have ended; one that did not claim its start never will.

        Of a job that was deleted meanwhile there is nothing to note.
        """
        with self.lock:
            for start, child in list(self._children.items()):
                if (code := child.poll()) is not None:
                    if start.process is None and start.request is not None:
                        start.write_end(StartEnd(code or _FAILED, time.time()))
                    del self._children[start]


def terminate(process: StartProcess, number: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process to end: its job is suspended between micro-batches, and can be resumed.

    If the process was killed, the drivers that it has left are asked.
    """
    is_running = is_running_here(process.host, process.machine, process.pid, process.started)
    for pid in [process.pid] if is_running else drivers_left_by(process):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def environment_of_jobs(server: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the server without what only the server may know."""
    return {name: value for name, value in server.items() if not name.startswith(_OF_THE_SERVER)}
