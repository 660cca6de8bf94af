"""Errors of `penstock serve`."""

from penstock.errors.configuration import ConfigurationError


class TokensFileError(ConfigurationError):
    """The file with the tokens of a server cannot be used."""

    path: str
    reason: str
    template = (
        "tokens file {path!r} cannot be used: {reason}; it needs mode 0600 and lines such as "
        "'operator TOKEN' or 'reader TOKEN' with tokens of at least 20 characters"
    )


class UnprotectedServerError(ConfigurationError):
    """A server would let everybody in the network control jobs."""

    host: str
    template = (
        "{host!r} is not a loopback address: set penstock.serve.tokens-file, or --tokens, so that "
        "only those with a token see and control jobs"
    )


class ServerAddressError(ConfigurationError):
    """A server cannot listen on its address."""

    host: str
    port: int
    reason: str
    template = (
        "the server cannot listen on {host} port {port}: {reason}; choose another with --port"
    )
