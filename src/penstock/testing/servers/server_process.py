"""The base class of all servers: a process that can be started, killed, paused and restarted."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from penstock.errors import ServerNotReadyError
from penstock.testing.servers import process_tree
from penstock.testing.servers.free_port import LOOPBACK, free_port

_LOG_LINES = 40
_STOP_TIMEOUT_S = 30.0
_CHILDREN_TIMEOUT_S = 10.0


class ServerProcess(ABC):
    """One server on one loopback port with one data directory.

    Port and data never change, so that clients find the server again after `kill` and `start`.
    Without a `directory` it creates one, and `close` removes it. The process is killed when the
    process that started it dies. All methods may be called from any thread, one at a time.
    """

    name = "server"
    start_timeout_s = 60.0
    """How long a start may take."""
    stop_signal = signal.SIGTERM

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._owns_directory = directory is None
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"penstock-{self.name.lower()}-")
            if directory is None
            else Path(directory).absolute()
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.host = LOOPBACK
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._prepared = False
        self._paused = False

    @abstractmethod
    def _prepare(self) -> None:
        """Create the data directory; called once, and again if it failed."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the command line of the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the server serves clients; called until it does."""

    def _user(self) -> str | None:
        """Return the user to run as; None for the user of this process."""
        return None

    @property
    def log_file(self) -> Path:
        """The output of the server, over all its starts."""
        return self.directory / "server.log"

    @property
    def pid(self) -> int | None:
        """The pid of the server, if it was started and not ended."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server, unless it runs, and return when it serves clients."""
        if self.running:
            return self
        self._forget()
        if not self._prepared:
            self._prepare()
            self._prepared = True
        self._launch()
        self._await_answer()
        return self

    def stop(self) -> None:
        """Shut the server down cleanly, and wait for its end."""
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill the server and its children (SIGKILL), and return when all are gone."""
        if self._process is None:
            return
        if self._process.poll() is None:
            members = process_tree.signal_tree(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._await_end(members[1:])
        self._forget()

    def pause(self) -> None:
        """Suspend the server and its children (SIGSTOP); connections stay open."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Resume the server if it is paused, and return when it serves clients."""
        if self._paused and self.running:
            self._signal(signal.SIGCONT)
            self._await_answer()
        self._paused = False

    def restart(self) -> None:
        """Stop and start the server."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove the directory that it created; may be repeated."""
        self.kill()
        if self._owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        if not self.log_file.is_file():
            return "(nothing)"
        lines = self.log_file.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def _launch(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                user=self._user(),
                start_new_session=True,
            )
        start = process_tree.start_time(self._process.pid)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", process_tree.__file__, str(self._process.pid), str(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_timeout_s
        while not (self._is_listening() and self._answers()):
            code = self._process.poll()
            if code is not None:
                self._forget()
                raise ServerNotReadyError(self.name, f"ended with {code}", self.log_tail())
            if time.monotonic() > deadline:
                self.kill()
                reason = f"does not answer after {self.start_timeout_s:.0f} s"
                raise ServerNotReadyError(self.name, reason, self.log_tail())
            time.sleep(0.05)

    def _is_listening(self) -> bool:
        # Another process may have taken the port, and would answer as well.
        assert self._process is not None
        try:
            return process_tree.is_listening(self._process.pid, self.port)
        except OSError:
            return False

    def _await_end(self, members: Sequence[int]) -> None:
        # Orphans may be reaped late; a zombie holds no resources and counts as ended.
        deadline = time.monotonic() + _CHILDREN_TIMEOUT_S
        while (
            any(process_tree.is_alive(member) for member in members) and time.monotonic() < deadline
        ):
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            process_tree.signal_tree(self._process.pid, number)

    def _forget(self) -> None:
        # The guard ends first: it must not kill another process that gets the same pid.
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        self._process = None
        self._paused = False
