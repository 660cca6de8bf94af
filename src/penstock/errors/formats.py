"""Errors of files that cannot be read in the format that was declared for them."""

from penstock.errors.connectors import ConnectorError


class UnreadableFileError(ConnectorError):
    """A file is damaged, or is not what its format or its schema says.

    ``where`` names the place in the file and, if known, the field.
    """

    def __init__(self, path: str, where: str, reason: str) -> None:
        super().__init__(path, where, reason)
        self.path = path
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"file {self.path} cannot be read at {self.where}: {self.reason}; correct the file or "
            "the schema: the job goes on from its checkpoint, and nothing is skipped"
        )


class UnwritableRecordError(ConnectorError):
    """A record does not fit the schema of the files a sink writes."""

    def __init__(self, shown: str, reason: str) -> None:
        super().__init__(shown, reason)
        self.shown = shown
        self.reason = reason

    def __str__(self) -> str:
        return f"record {self.shown} does not fit the schema of the file: {self.reason}"
