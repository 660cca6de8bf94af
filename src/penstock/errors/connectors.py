"""Errors of sources and sinks."""

from penstock.errors.base import PenstockError


class ConnectorError(PenstockError):
    """A source or sink cannot do its work."""


class LostStagedFileError(ConnectorError):
    """A file that a task staged is not what the task left behind."""

    def __init__(self, path: str, expected_size: int, size: int) -> None:
        super().__init__(path, expected_size, size)
        self.path = path
        self.expected_size = expected_size
        self.size = size

    def __str__(self) -> str:
        return f"staged file {self.path} needs {self.expected_size} bytes; got {self.size}"


class LostReceiverError(ConnectorError):
    """Nobody is there any more to receive what a job collects."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step

    def __str__(self) -> str:
        return (
            f"step {self.step!r} collects values for a program that is gone; "
            "keep the sink alive while the job runs, in the process that runs it"
        )


class MissingPathError(ConnectorError):
    """A path to read from does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"path {self.path!r} does not exist"


class UnwritablePathError(ConnectorError):
    """A sink cannot write below the path it was given."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot write below {self.path!r}: {self.reason}"


class ChangedFileError(ConnectorError):
    """A file that is being read has become shorter."""

    def __init__(self, path: str, expected_size: int, size: int) -> None:
        super().__init__(path, expected_size, size)
        self.path = path
        self.expected_size = expected_size
        self.size = size

    def __str__(self) -> str:
        return (
            f"file {self.path} must not change once it was seen; "
            f"needs at least {self.expected_size} bytes, got {self.size}"
        )


class TextDecodingError(ConnectorError):
    """A file holds bytes that are no text in its charset."""

    def __init__(self, path: str, offset: int, charset: str, reason: str) -> None:
        super().__init__(path, offset, charset, reason)
        self.path = path
        self.offset = offset
        self.charset = charset
        self.reason = reason

    def __str__(self) -> str:
        return f"file {self.path} is no {self.charset} text at byte {self.offset}: {self.reason}"


class SocketConnectionError(ConnectorError):
    """A socket source cannot connect, or has lost its connection."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host = host
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"no connection to {self.host}:{self.port}: {self.reason}"


class StreamQueryError(ConnectorError):
    """A streaming query that is a source of a job has failed, or cannot go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the streaming query of a from_stream() failed: {self.reason}"


class CorruptIngestionLogError(ConnectorError):
    """An ingestion log is damaged in a way no crash can explain; it is left untouched."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"ingestion log {self.path} cannot be used, at byte {self.offset}: {self.reason}; "
            "put back a good copy, or move the log away to go on without its records"
        )


class LockedIngestionLogError(ConnectorError):
    """Another process, or another attempt of the job, still writes an ingestion log."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"ingestion log {self.path} is in use; stop the job that writes it first"


class CommitFailedError(ConnectorError):
    """A sink could not commit.

    ``kind`` is "failed" if it may succeed later, "impossible" if not before somebody removes the
    cause, "unknown" if it may have happened.
    """

    def __init__(self, step: str, kind: str, count: int, reason: str) -> None:
        super().__init__(step, kind, count, reason)
        self.step = step
        self.kind = kind
        self.count = count
        self.reason = reason

    @property
    def is_permanent(self) -> bool:
        """Whether the next attempt would fail in the same way."""
        return self.kind == "impossible"

    def __str__(self) -> str:
        what = "1 commit" if self.count == 1 else f"{self.count} commits"
        if self.kind == "unknown":
            return (
                f"step {self.step!r}: nobody knows whether {what} took place: {self.reason}; "
                "restore the checkpoint: commits that took place are not repeated"
            )
        return (
            f"step {self.step!r}: {what} failed: {self.reason}; nothing was dropped, the "
            "checkpoint still holds them: remove the cause and restore it"
        )


class LostPendingFileError(ConnectorError):
    """A file that waited for its commit is gone, and it is not under its final name either."""

    def __init__(self, pending: str, final: str) -> None:
        super().__init__(pending, final)
        self.pending = pending
        self.final = final

    def __str__(self) -> str:
        return (
            f"pending file {self.pending} is gone and there is no {self.final}; put one of the "
            "two back (if the final file was moved away, an empty file in its place will do)"
        )


class OccupiedPathError(ConnectorError):
    """Another file lies where a finished one should go."""

    def __init__(self, pending: str, final: str) -> None:
        super().__init__(pending, final)
        self.pending = pending
        self.final = final

    def __str__(self) -> str:
        return (
            f"pending file {self.pending} cannot become {self.final}: another file is there, and "
            "existing files are never overwritten; move that file away"
        )


class SweptTransactionError(ConnectorError):
    """A later attempt of the job has aborted a transaction that this one was about to prepare."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"transaction {self.name} was aborted by a later attempt of the job, which has taken "
            "over; nothing is lost: that attempt writes its values again"
        )
