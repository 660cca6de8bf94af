"""`penstock serve`: a web server over the jobs of a checkpoint directory."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import click

from penstock.cli.options import CommandSettings, directory_options
from penstock.common.storage_url import Location
from penstock.errors import RuntimeSetupError


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
    "--port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Port."
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name under which browsers reach the server.",
)
def serve(
    directory: Location | None,
    defines: tuple[str, ...],
    config: Path | None,
    host: str,
    port: int,
    allowed_hosts: tuple[str, ...],
) -> None:
    """Serve a dashboard and Flink's REST API for the jobs in a checkpoint directory."""
    settings = CommandSettings.read(defines, config, directory)
    if not is_loopback(host):
        message = f"{host!r} is not a loopback address, and the server has no access control yet"
        raise click.BadParameter(message, param_hint="--host")
    try:
        from penstock.serve.context import ServerSettings
        from penstock.serve.server import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "penstock":
            raise
        message = "penstock serve needs starlette and uvicorn: pip install 'penstock[serve]'"
        raise RuntimeSetupError(message) from error
    run(
        ServerSettings(
            settings.directory,
            settings.heartbeat_timeout_s,
            host,
            port,
            savepoint_directory=settings.savepoint_directory,
            allowed_hosts=allowed_hosts,
            storage_options=settings.storage_options,
        )
    )
