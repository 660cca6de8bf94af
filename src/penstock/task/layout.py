"""The directories of a job attempt: the one place that builds these paths."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.common.storage_url import Location, StorageUrl
from penstock.errors import UnsharedHostError
from penstock.ids import AttemptId, ChannelId, JobKey, OperatorUid, StageId
from penstock.state.backends.refs import StateLocation, UnresolvedStateLocation
from penstock.state.local_dir import AttemptDir, HostDir


class SinkDirs(NamedTuple):
    """The directories of a sink."""

    staging: Path
    """Of output that no checkpoint needs."""
    work: Path
    """Of output that stays until its checkpoint is committed."""


@dataclass(frozen=True, slots=True)
class UnsharedHosts:
    """Where hosts that share no directory have the files that would be in it."""

    files: HostDir
    """On each host, what its own tasks read again: state files, and output not yet handed over."""
    relay: StorageUrl
    """In the store, what a task leaves for the driver, or for a task on another host."""


@dataclass(frozen=True, slots=True)
class AttemptLayout:
    """The directories of one job attempt.

    The driver and all tasks see `shared`, which no other attempt uses, and `durable`, the job's
    directory, which stays: state, and the files of connectors. If that is in a store, tasks work on
    files in `shared`, and checkpoints put them into the store. Then `shared` may be the driver's
    alone: `unshared` says what takes its place. `local` is a directory of the same name on each
    host: a cache that may be lost at any time.
    """

    shared: Path
    local: HostDir
    attempt: AttemptId
    durable: Location
    job: JobKey
    lineage: str = "a1"
    """The restore lineage: the attempt with which the job last started without restored state.

    All attempts that resume from one another share it, and with it the files of connectors.
    """
    job_instance: str = ""
    """Tells the job from others of the same name, elsewhere or here before it."""
    unshared: UnsharedHosts | None = None
    """None if driver and tasks share `shared`."""

    @property
    def root(self) -> Path:
        """The directory of everything this attempt writes; the driver's own if hosts share none."""
        return self.shared / self.attempt

    def check_host(self) -> None:
        """Check, on the host of the calling task, that it sees what driver and tasks share.

        Only if the job's directory is in a store: then another attempt can do without.

        Raises:
            UnsharedHostError: it does not: it has joined after the attempt looked at its hosts.
        """
        is_checked = self.unshared is None and isinstance(self.durable, StorageUrl)
        if is_checked and not self.root.is_dir():
            raise UnsharedHostError(socket.gethostname(), str(self.root))

    @property
    def relay(self) -> StorageUrl | None:
        """This attempt's place in the store for what goes from host to host; None if not needed."""
        return None if self.unshared is None else self.unshared.relay / self.attempt

    def manifest(self, stage: StageId, batch: int) -> Path:
        """The manifest of a published micro-batch."""
        return self.root / "manifests" / str(stage) / f"{batch}.json"

    def channel(self, channel: ChannelId | int) -> Location:
        """The segment files of a channel."""
        return (self.relay or self.root) / "channels" / str(channel)

    def sink_dirs(self, uid: OperatorUid) -> SinkDirs:
        """The directories that driver and tasks use for a sink, on the driver."""
        name = file_name(uid)
        return SinkDirs(self.root / "staging" / name, self.connector_root / name)

    def sink_dirs_of_task(self, uid: OperatorUid) -> SinkDirs:
        """The same directories, on the host of the calling task."""
        if self.unshared is None:
            return self.sink_dirs(uid)
        root = self.unshared.files.create() / self.attempt
        return SinkDirs(root / "staging" / file_name(uid), root / "connectors" / file_name(uid))

    def _state_files(self, uid: OperatorUid, subtask: int) -> Path | HostDir:
        """The files of one subtask's keyed state, of all attempts unless they are in a store."""
        of_subtask = f"shared/{file_name(uid)}/{subtask}"
        if self.unshared is not None:
            return self.unshared.files / f"{self.attempt}/{of_subtask}"
        durable = self.root if isinstance(self.durable, StorageUrl) else self.durable
        return durable / of_subtask

    def state_store(self, uid: OperatorUid, subtask: int) -> StorageUrl | None:
        """Where checkpoints put these files in a store, None if the job's directory is in none."""
        if not isinstance(self.durable, StorageUrl):
            return None
        return self.durable / "shared" / file_name(uid) / str(subtask)

    def place(self, uid: OperatorUid, subtask: int) -> UnresolvedStateLocation:
        """The location of one subtask's keyed state: its files, and its copy on each host."""
        local = self.attempt_dir.host_dir / file_name(uid) / str(subtask)
        files = self._state_files(uid, subtask)
        return UnresolvedStateLocation(files, local, self.state_store(uid, subtask))

    @property
    def attempt_dir(self) -> AttemptDir:
        """This attempt's directory of local stores on each host."""
        return AttemptDir(self.local, self.attempt)

    @property
    def attempt_dirs(self) -> tuple[AttemptDir, ...]:
        """All of this attempt's directories on each host."""
        if self.unshared is None:
            return (self.attempt_dir,)
        return (self.attempt_dir, AttemptDir(self.unshared.files, self.attempt))

    @property
    def connector_root(self) -> Path:
        """The files of connectors in one restore lineage, a directory for each source or sink.

        If the job's directory is in a store, these are this driver's copies.
        """
        durable = self.shared if isinstance(self.durable, StorageUrl) else self.durable
        return durable / "connectors" / self.lineage

    @property
    def connector_store(self) -> StorageUrl | None:
        """Where these files are in a store, None if the job's directory is in none."""
        if not isinstance(self.durable, StorageUrl):
            return None
        return self.durable / "connectors" / self.lineage


def state_location(shared: Location, uid: OperatorUid, subtask: int) -> StateLocation:
    """Return where the files of a subtask's state are in the directory of a job's state files.

    Without a local directory: for reading only.
    """
    place = shared / file_name(uid) / str(subtask)
    if isinstance(place, StorageUrl):
        return StateLocation(_NOWHERE, _NOWHERE, place)
    return StateLocation(place, place)


_NOWHERE = Path(os.devnull)
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def file_name(uid: OperatorUid) -> str:
    """Return a directory name for a step: a user's uid may be anything, even a path."""
    if _PLAIN.fullmatch(uid):
        return uid
    return f"uid-{hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()}"
