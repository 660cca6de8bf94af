"""Where a job attempt keeps its files: the one place that spells these paths."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.ids import AttemptId, ChannelId, JobKey, OperatorUid, StageId
from penstock.state.backends.base import RemotePlace
from penstock.state.local_dir import AttemptDir, HostDir


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one job attempt.

    `shared` is seen by the driver and by every task, and of no use to another attempt; `durable`
    is seen by all too, and stays: state and what connectors keep. `local` is a directory of the
    same name on each host, wherever that host keeps it: a cache that may be lost at any time.
    """

    shared: Path
    local: HostDir
    attempt: AttemptId
    durable: Path
    job: JobKey
    life: str = "a1"
    """The attempt with which the job last began anew: what connectors keep is of one life."""
    birth: str = ""
    """Tells the job from others of the same name, elsewhere or here before it."""

    @property
    def root(self) -> Path:
        """Everything this attempt writes lies below."""
        return self.shared / self.attempt

    def instruction(self, stage: StageId, batch: int, try_number: int) -> Path:
        """What the tasks of one try of a micro-batch read first."""
        return self.root / "instructions" / str(stage) / f"{batch}-{try_number}.msgpack"

    def manifest(self, stage: StageId, batch: int) -> Path:
        """What was published of a micro-batch."""
        return self.root / "manifests" / str(stage) / f"{batch}.json"

    def channel(self, channel: ChannelId | int) -> Path:
        """The segment files of a channel."""
        return self.root / "channels" / str(channel)

    def staging(self, uid: OperatorUid) -> Path:
        """What the tasks of a sink stage."""
        return self.root / "staging" / file_name(uid)

    def state(self, uid: OperatorUid, subtask: int) -> Path:
        """Bases and deltas of one subtask's keyed state, of all attempts."""
        return self.durable / "shared" / file_name(uid) / str(subtask)

    def place(self, uid: OperatorUid, subtask: int) -> RemotePlace:
        """Where one subtask's keyed state lies: what `state` says, and each host's copy of it."""
        local = self.on_hosts.everywhere / file_name(uid) / str(subtask)
        return RemotePlace(self.state(uid, subtask), local)

    @property
    def on_hosts(self) -> AttemptDir:
        """Everything this attempt writes on hosts lies below."""
        return AttemptDir(self.local, self.attempt)

    @property
    def durable_root(self) -> Path:
        """What connectors keep across the attempts of one life of the job, a directory each."""
        return self.durable / "connectors" / self.life


_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def file_name(uid: OperatorUid) -> str:
    """Return a name for a step's directory; a user's uid may be anything, also a path."""
    if _PLAIN.fullmatch(uid):
        return uid
    return f"uid-{hashlib.blake2b(uid.encode(), digest_size=16).hexdigest()}"
