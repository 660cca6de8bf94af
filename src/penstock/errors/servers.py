"""Errors of the real servers that tests, demo and benches start."""

from penstock.errors.base import PenstockError


class ServerError(PenstockError):
    """A server of `penstock.testing.servers` cannot be started or used."""


class MissingServerError(ServerError):
    """What a server is made of is not on this machine."""

    def __init__(self, server: str, missing: str, remedy: str) -> None:
        super().__init__(server, missing, remedy)
        self.server = server
        self.missing = missing
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.server} cannot run here: no {self.missing}; {self.remedy}"


class ServerNotReadyError(ServerError):
    """A server was started and did not come up."""

    def __init__(self, server: str, reason: str, log: str) -> None:
        super().__init__(server, reason, log)
        self.server = server
        self.reason = reason
        self.log = log

    def __str__(self) -> str:
        return f"{self.server} {self.reason}; the end of its log:\n{self.log}"
