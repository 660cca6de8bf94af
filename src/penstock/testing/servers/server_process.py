"""What all servers share: a process that is started, killed, paused and started again."""

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
from types import TracebackType
from typing import Self

from penstock.errors import ServerNotReadyError
from penstock.testing.servers import family
from penstock.testing.servers.free_port import LOOPBACK, free_port

__all__ = ["ServerProcess"]

_LOG_LINES = 40
_PATIENCE_OF_STOP = 30.0
_PATIENCE_OF_CHILDREN = 10.0


class ServerProcess(ABC):
    """One server on one loopback port with one data directory.

    Port and data stay the same for its whole life, so that clients find it again after `kill` and
    `start`. Without a `directory` it makes its own and `close` removes that; a given one is kept.
    The process is killed when the one that started it dies. All methods may be called from any
    thread, one at a time.
    """

    name = "server"
    patience = 60.0
    """How many seconds a start may take."""
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
        """Make the data directory, once in the life of this server; repeated if it failed."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return what to run."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tell whether the server serves clients; asked until it does."""

    def _user(self) -> str | None:
        """Return as whom to run; None is the user of this process."""
        return None

    @property
    def log_file(self) -> Path:
        """What the server says, over all its starts."""
        return self.directory / "server.log"

    @property
    def pid(self) -> int | None:
        """The server's process, if one was started and not waited for."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server on its port and data, and return when it serves; nothing if it runs."""
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
        """End the server as an administrator would, and wait for it."""
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(_PATIENCE_OF_STOP)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill the server and its children (SIGKILL), and return when all are gone."""
        if self._process is None:
            return
        if self._process.poll() is None:
            members = family.signal_family(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._await_end(members[1:])
        self._forget()

    def pause(self) -> None:
        """Stop the server and its children in their tracks (SIGSTOP): connections stay open."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused server go on, and return when it serves; nothing if it is not paused."""
        if self._paused and self.running:
            self._signal(signal.SIGCONT)
            self._await_answer()
        self._paused = False

    def restart(self) -> None:
        """Stop and start again, on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove the directory it made; may be repeated."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        start = family.born(self._process.pid)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", family.__file__, str(self._process.pid), str(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.patience
        while not (self._listens() and self._answers()):
            code = self._process.poll()
            if code is not None:
                self._forget()
                raise ServerNotReadyError(self.name, f"ended with {code}", self.log_tail())
            if time.monotonic() > deadline:
                self.kill()
                reason = f"does not answer after {self.patience:.0f} s"
                raise ServerNotReadyError(self.name, reason, self.log_tail())
            time.sleep(0.05)

    def _listens(self) -> bool:
        # Somebody else may have taken the port, and would answer as well.
        assert self._process is not None
        try:
            return family.listens(self._process.pid, self.port)
        except OSError:
            return False

    def _await_end(self, members: Sequence[int]) -> None:
        # Orphans are reaped by whoever adopts them, which may be late: a zombie holds nothing.
        deadline = time.monotonic() + _PATIENCE_OF_CHILDREN
        while any(family.alive(member) for member in members) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            family.signal_family(self._process.pid, number)

    def _forget(self) -> None:
        # The guard goes first: it must not kill whoever gets the pid next.
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        self._process = None
        self._paused = False
