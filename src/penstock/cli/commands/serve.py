"""`penstock serve`: a web server over the jobs of a checkpoint directory."""

from __future__ import annotations

import ipaddress
from getpass import getuser
from pathlib import Path

import click

from penstock.cli.options import CommandSettings, directory_options, settings_of
from penstock.common.config.serve_options import (
    SERVE_ALLOWED_HOSTS,
    SERVE_TLS_CERTIFICATE,
    SERVE_TLS_KEY,
    SERVE_TOKENS_FILE,
)
from penstock.common.config.submission_options import SUBMISSION_ENABLED
from penstock.common.config_options import read
from penstock.common.storage_url import Location
from penstock.errors import RuntimeSetupError, UnprotectedServerError, UnprotectedSubmissionError

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address of a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@click.command()
@directory_options
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="Port; 0 chooses one.",
)
@click.option("--tokens", type=_FILE, metavar="FILE", help="Bearer tokens, with their roles.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain, for HTTPS.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of the certificate.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name under which browsers reach the server.",
)
@click.option(
    "--submission",
    "with_submission",
    is_flag=True,
    help="Let operators upload programs and run them, as the user of the server.",
)
def serve(
    directory: Location | None,
    defines: tuple[str, ...],
    config: Path | None,
    host: str,
    port: int,
    tokens: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    allowed_hosts: tuple[str, ...],
    with_submission: bool,
) -> None:
    """Serve a dashboard and Flink's REST API for the jobs in a checkpoint directory.

    On other addresses than loopback ones, and with --submission, it needs --tokens.
    """
    settings = CommandSettings.read(defines, config, directory)
    configuration = settings_of(defines, config)
    tokens = tokens or read(configuration, SERVE_TOKENS_FILE)
    if tokens is None and not is_loopback(host):
        raise UnprotectedServerError(host)
    try:
        from penstock.serve.context import ServerSettings
        from penstock.serve.http.tokens import read_tokens
        from penstock.serve.server import serve as run
        from penstock.serve.submission.settings import SubmissionSettings
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "penstock":
            raise
        message = "penstock serve needs starlette and uvicorn: pip install 'penstock[serve]'"
        raise RuntimeSetupError(message) from error
    names = (read(configuration, SERVE_ALLOWED_HOSTS) or "").split(",")
    certificate = tls_cert or read(configuration, SERVE_TLS_CERTIFICATE)
    if certificate is None and not is_loopback(host):
        click.echo(
            "Warning: without --tls-cert tokens cross the network as they are; put the server "
            "behind a proxy that speaks TLS, or give it a certificate.",
            err=True,
        )
    submission = None
    if with_submission or read(configuration, SUBMISSION_ENABLED):
        if tokens is None:
            raise UnprotectedSubmissionError(getuser())
        submission = SubmissionSettings.read(configuration, settings.directory)
    run(
        ServerSettings(
            settings.directory,
            settings.heartbeat_timeout_s,
            host,
            port,
            savepoint_directory=settings.savepoint_directory,
            allowed_hosts=(*allowed_hosts, *(name.strip() for name in names if name.strip())),
            tokens=None if tokens is None else read_tokens(tokens),
            tls_cert=certificate,
            tls_key=tls_key or read(configuration, SERVE_TLS_KEY),
            storage_options=settings.storage_options,
            submission=submission,
        )
    )
