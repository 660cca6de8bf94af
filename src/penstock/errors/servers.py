"""Errors of the servers that tests, demos and benchmarks start."""

from penstock.errors.base import PenstockError


class ServerError(PenstockError):
    """A server of `penstock.testing.servers` cannot be started or used."""


class MissingServerError(ServerError):
    """The programs or files that a server needs are not on this machine."""

    server: str
    missing: str
    remedy: str
    template = "{server} cannot run here: no {missing}; {remedy}"


class ServerNotReadyError(ServerError):
    """A server was started and did not become ready."""

    server: str
    reason: str
    log: str
    template = "{server} {reason}; the end of its log:\n{log}"
