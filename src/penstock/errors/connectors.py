"""Errors of sources and sinks, of files and of their formats."""

from penstock.errors.base import PenstockError, plural


class ConnectorError(PenstockError):
    """A source or sink cannot do its work."""


class BadDataError(ConnectorError):
    """Data cannot be read or written as it is; the same data fails again in the next attempt."""

    @property
    def fingerprint(self) -> str:
        """The message, which names the data."""
        return f"{type(self).__name__}: {self}"


class LostStagedFileError(ConnectorError):
    """A staged file does not have the size that its task reported."""

    path: str
    expected_size: int
    size: int
    template = (
        "staged file {path} has {size} bytes, but its task wrote {expected_size}; put back a good "
        "copy, or restore the last checkpoint"
    )


class UnsafeNameError(ConnectorError):
    """A snapshot names a file outside of the directory where its files are."""

    name: str
    root: str
    template = (
        "the snapshot names {name!r}, which is not inside {root}: the snapshot is damaged or "
        "forged; nothing outside was touched: restore another one"
    )


class LostReceiverError(ConnectorError):
    """The program that collects a job's output is no longer there to receive it."""

    step: str
    template = (
        "step {step!r} collects values for a program that is gone; keep the sink alive while the "
        "job runs, in the process that runs it"
    )


class MissingPathError(ConnectorError):
    """A path to read from does not exist."""

    path: str
    template = "path {path!r} does not exist; create it, or correct the path of the source"


class RemotePathError(ConnectorError, ValueError):
    """A path of a source or sink is in a remote file system that is not supported."""

    path: str
    is_permanent = True
    template = (
        "path {path!r} is in no local or mounted file system and in no supported store "
        "(s3://bucket/path, gs://, az://, hdfs://host:port/path): correct the URL and give it as a "
        "text, mount it, or let Spark read it with env.from_dataframe() or env.from_stream()"
    )


class MissingOnHostError(ConnectorError):
    """A host of the cluster does not have a path that a source or sink needs there."""

    step: str
    path: str
    host: str
    template = (
        "step {step!r} needs {path} on every host, and host {host} does not have it: mount it "
        "there, or use a path in a store"
    )


class UnwritablePathError(ConnectorError):
    """A sink cannot write below its path."""

    path: str
    reason: str
    template = "cannot write below {path!r}: {reason}"


class InvalidBucketError(BadDataError):
    """A bucket assigner returned a name that is no directory below the sink's path."""

    bucket: object
    path: str
    reason: str
    template = (
        "bucket {bucket} is not a directory below {path}: {reason}; let the bucket assigner return "
        "a relative path such as '2024-05-01/eu', and replace '/' and '..' in values"
    )


class ChangedFileError(BadDataError):
    """A file is not the one that the job began to read."""

    path: str
    change: str
    template = (
        "file {path} changed after the job began to read it: {change}; put the file back as it "
        "was, or set penstock.source.changed-files to accept to continue in the new content; files "
        "must be complete when they appear: write them elsewhere, and rename them"
    )


class InputTooLargeError(BadDataError):
    """A record or block of an input is above its limit."""

    what: str
    limit: int
    key: str
    template = "{what} has more than {limit} bytes; correct the input, or raise {key}"


class TextDecodingError(BadDataError):
    """A file holds bytes that are not text in its charset."""

    path: str
    offset: int
    charset: str
    reason: str
    template = "file {path} is not {charset} text at byte {offset}: {reason}"


class UnreadableFileError(BadDataError):
    """A file is damaged, or does not match its format or schema.

    ``where`` names the position in the file and, if known, the field.
    """

    path: str
    where: str
    reason: str
    template = (
        "file {path} cannot be read at {where}: {reason}; correct the file or the schema: the job "
        "resumes from its checkpoint, and nothing is skipped"
    )


class UnwritableRecordError(BadDataError):
    """A record does not match the schema of the files a sink writes."""

    record: object
    reason: str
    template = (
        "record {record} does not match the schema of the file: {reason}; change the record in a "
        "map(), or the schema of the sink"
    )


class SocketConnectionError(ConnectorError):
    """A socket source cannot connect, or has lost its connection."""

    host: str
    port: int
    reason: str
    template = "no connection to {host}:{port}: {reason}"


class StreamQueryError(ConnectorError):
    """A streaming query that is a source of a job has failed or cannot continue."""

    reason: str
    template = "the streaming query of a from_stream() failed: {reason}"


class CorruptIngestionLogError(ConnectorError):
    """An ingestion log is damaged in a way no crash can explain; it is left untouched."""

    path: str
    offset: int
    reason: str
    template = (
        "ingestion log {path} cannot be used, at byte {offset}: {reason}; put back a good copy, or "
        "move the log away to continue without its records"
    )


class MissingIngestionDirectoryError(ConnectorError):
    """A source has files that a store cannot hold, and the job's directory is in a store."""

    step: str
    files: str
    job: str
    is_permanent = True
    template = (
        "step {step!r} has {files}, which must outlive the driver and cannot be in a store such as "
        "{job}: set penstock.ingestion.dir to a directory that outlives the driver, and that "
        "driver and executors share"
    )


class LockedIngestionLogError(ConnectorError):
    """Another job has an ingestion log open; a later attempt of the same job takes it over."""

    path: str
    template = "ingestion log {path} is in use; stop the job that writes it first"


class CommitFailedError(ConnectorError):
    """A sink could not commit.

    ``kind`` is "failed" if a retry may succeed, "impossible" if it cannot before the cause is
    removed, "unknown" if the commit may have happened.
    """

    step: str
    kind: str
    count: int
    reason: str

    @property
    def is_permanent(self) -> bool:
        """Whether the next attempt would fail in the same way."""
        return self.kind == "impossible"

    def __str__(self) -> str:
        commits = plural(self.count, "commit")
        if self.kind == "unknown":
            return (
                f"step {self.step!r}: it is not known whether {commits} succeeded: {self.reason}; "
                "restore the checkpoint: commits that succeeded are not repeated"
            )
        return (
            f"step {self.step!r}: {commits} failed: {self.reason}; nothing was dropped, the "
            "checkpoint still holds the output: remove the cause and restore the checkpoint"
        )


class LostPendingFileError(ConnectorError):
    """A pending file is gone, and it is not under its final name either."""

    pending: str
    final: str
    template = (
        "pending file {pending} is gone and there is no {final}; put one of the two back (if the "
        "final file was moved away, an empty file in its place is enough)"
    )


class OccupiedPathError(ConnectorError):
    """Another file exists under the name that a finished file should get."""

    pending: str
    final: str
    template = (
        "pending file {pending} cannot be renamed to {final}: another file has that name, and "
        "existing files are never overwritten; move that file away"
    )


class AbortedTransactionError(ConnectorError):
    """A later attempt of the job aborted a transaction that this attempt was about to prepare."""

    name: str
    template = (
        "transaction {name} was aborted by a later attempt of the job, which has taken over; "
        "nothing is lost: that attempt writes its values again"
    )
