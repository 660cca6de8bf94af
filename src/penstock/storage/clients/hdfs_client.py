"""Clients of HDFS, made from the settings of a `StorageUrl`, and the errors they raise."""

from __future__ import annotations

import errno
import importlib
import re
from dataclasses import dataclass
from typing import Any

from penstock.common.config.known_options import STORAGE_PREFIX
from penstock.common.storage_url import StorageUrl
from penstock.common.text.durations import parse_duration
from penstock.errors import RuntimeSetupError, StorageSettingsError
from penstock.storage.clients.client_cache import ClientCache
from penstock.storage.clients.fork_check import ForkCheck
from penstock.storage.clients.repetition import Repetition

_PREFIX = "hdfs."
_KEYS = STORAGE_PREFIX + _PREFIX
_KERBEROS = ("kerberos-principal", "kerberos-keytab", "kerberos-cache")
_RETRY_TIMEOUT = "retry-timeout"
_RETRY_SECONDS = 60.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_DEFAULTS = {
    # The client's own repetitions then take a minute, not three.
    "dfs.client.failover.sleep.max.millis": "5000",
}
_REMOTE = re.compile(r'RPCError\("([^"]+)", "((?:[^"\\]|\\.)*)')
_CONNECTION = "connection"
"""The kind of an error that is no answer: the name node is away, or a data node."""
_PASSING = frozenset({_CONNECTION, "SafeModeException", "RetriableException", "StandbyException"})
_PASSING_TEXTS = (
    "minReplication nodes",
    "Not replicated yet",
    "not sufficiently replicated yet",
    "DataTransferError(",  # a data node has gone away in the middle of a block
)
_NUMBERS = {
    "AccessControlException": errno.EACCES,
    "AuthorizationException": errno.EACCES,
    "DSQuotaExceededException": errno.EDQUOT,
    "InvalidPathException": errno.EINVAL,
    "NSQuotaExceededException": errno.EDQUOT,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsNotDirectoryException": errno.ENOTDIR,
    "SaslException": errno.EACCES,
}


@dataclass(frozen=True)
class HdfsClient:
    """A client of one name node or name service."""

    library: Any
    """The module `hdfs_native`."""
    client: Any
    repetition: Repetition


_forks = ForkCheck()


def client_of(url: StorageUrl) -> HdfsClient:
    """Return the client for a name node, which is shared by all storages with the same settings.

    Raises:
        RuntimeSetupError: hdfs-native is not installed.
        StorageSettingsError: the settings cannot be used, or name no name node.
    """
    return _clients.get(url)


def check_fork(url: StorageUrl) -> None:
    """Raise a RuntimeError in a process that must not use HDFS."""
    _forks.before_use(url)


def _make(url: StorageUrl) -> HdfsClient:
    try:
        library = importlib.import_module("hdfs_native")
    except ImportError as error:
        message = (
            "hdfs:// needs hdfs-native on the driver and on all workers: "
            "pip install '/path/to/penstock[hdfs]'"
        )
        raise RuntimeSetupError(message) from error
    settings = {
        key.removeprefix(_PREFIX): value
        for key, value in url.options.items()
        if key.startswith(_PREFIX)
    }
    seconds = _seconds(settings.pop(_RETRY_TIMEOUT, None))
    kerberos = {name.replace("-", "_"): settings.pop(name, None) for name in _KERBEROS}
    directory = settings.pop("config-dir", None)
    for name in settings:
        if "." not in name:
            reason = "unknown; correct or remove it (Hadoop's own keys have dots)"
            raise StorageSettingsError(_KEYS + name, reason)
    try:
        client = library.Client(
            f"hdfs://{url.authority}", {**_DEFAULTS, **settings}, directory, **kerberos
        )
    except (RuntimeError, OSError) as error:
        failed = HdfsFailure.of(error)
        reason = (
            f"{failed.summary}; give host and port of the name node, or the settings of the name "
            "service (HADOOP_CONF_DIR)"
        )
        raise StorageSettingsError(_KEYS + "*", reason) from error
    return HdfsClient(library, client, Repetition(seconds, _FIRST_WAIT, _LONGEST_WAIT))


def _seconds(value: str | None) -> float:
    if value is None:
        return _RETRY_SECONDS
    try:
        return parse_duration(value).total_seconds()
    except ValueError as error:
        reason = f'needs a duration such as "500 ms" or "1 min"; got {value!r}'
        raise StorageSettingsError(_KEYS + _RETRY_TIMEOUT, reason) from error


@dataclass(frozen=True)
class HdfsFailure:
    """What is known of a failed request."""

    number: int
    kind: str
    """The name of Hadoop's exception, or of Python's."""
    summary: str

    @classmethod
    def of(cls, error: Exception) -> HdfsFailure:
        """Return the facts in an exception of the client."""
        text = str(error)
        remote = _REMOTE.match(text)
        if remote is not None:
            kind, summary = remote[1].rpartition(".")[2], _first_line(remote[2])
            is_below_file = summary.endswith("(is not a directory)")
            number = errno.ENOTDIR if is_below_file else _NUMBERS.get(kind, errno.EIO)
            return cls(number, kind, summary)
        kind = type(error).__name__
        if isinstance(error, FileExistsError):
            return cls(errno.EEXIST, kind, _first_line(text))
        if isinstance(error, FileNotFoundError):
            return cls(errno.ENOENT, kind, _first_line(text))
        if isinstance(error, IsADirectoryError):
            return cls(errno.EISDIR, kind, _first_line(text))
        if isinstance(error, OSError):
            return cls(errno.EIO, _CONNECTION, _first_line(text))
        number = errno.EINVAL if isinstance(error, ValueError) else errno.EIO
        return cls(number, kind, _first_line(text))

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.kind in _PASSING or any(text in self.summary for text in _PASSING_TEXTS)

    def as_os_error(self, url: StorageUrl, store: StorageUrl) -> OSError:
        """Return the error for the caller, with the URL of the file."""
        if self.number == errno.EACCES:
            remedy = "correct its permissions, HADOOP_USER_NAME, or the Kerberos ticket"
        elif self.is_passing:
            remedy = f"check the name node and the data nodes of {store.authority}"
        else:
            return OSError(self.number, self.summary, str(url))
        return OSError(self.number, f"{self.summary}: {remedy}", str(url))


def _first_line(text: str) -> str:
    # The rest is a stack trace of the name node; its line ends may be escaped.
    return text.replace("\\n", "\n").partition("\n")[0].replace("\\t", " ").strip()


_clients: ClientCache[HdfsClient] = ClientCache(_make)
