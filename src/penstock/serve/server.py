"""Runs the server: listens until it is interrupted."""

from __future__ import annotations

import socket
import sys
import time

import uvicorn

from penstock.errors import ServerAddressError
from penstock.serve.application import context_of, create_app
from penstock.serve.context import ServerSettings
from penstock.serve.http.connections import ServerLoop, connections

_GRACE_S = 2
_SWITCH_S = 0.0005
"""For how long a thread that reads files may keep the event loop waiting."""
_LOOP = f"{ServerLoop.__module__}:{ServerLoop.__name__}"
_BACKLOG = 128
"""Also how many connections are accepted before the first of them is counted."""


def serve(settings: ServerSettings) -> None:
    """Look at the jobs once, then answer calls until SIGINT or SIGTERM.

    Raises:
        ServerAddressError: the address cannot be listened on.
        OSError: the checkpoint directory cannot be read.
    """
    sockets = listen(settings.host, settings.port)
    sys.setswitchinterval(_SWITCH_S)
    try:
        context = context_of(settings)
        began = time.monotonic()
        jobs = context.jobs.jobs()
        took = time.monotonic() - began
        config = uvicorn.Config(
            create_app(context),
            http=connections(),
            loop=_LOOP,
            backlog=_BACKLOG,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            # Nobody says on behalf of others where a request comes from.
            proxy_headers=False,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            timeout_graceful_shutdown=_GRACE_S,
        )
        server = uvicorn.Server(config)
        context.events.is_ending = lambda: server.should_exit
        address = _address(settings, sockets[0].getsockname()[1])
        seen = f"shows {len(jobs)} jobs in {settings.directory} (read in {took:.1f} s)"
        print(f"{address} {seen}", flush=True)
        if settings.submission is not None:
            print(f"Programs and logs of jobs are in {settings.submission.upload_dir}", flush=True)
        server.run(sockets)
    finally:
        for listening in sockets:
            listening.close()


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on the addresses of a host, on one port; 0 chooses it.

    Raises:
        ServerAddressError: that is not possible.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # IPv4 first: `localhost` may have an IPv6 address that this machine has not.
        for family, _, _, _, address in sorted(set(found)):
            place = (address[0], port or (sockets[0].getsockname()[1] if sockets else 0))
            try:
                sockets.append(socket.create_server(place, family=family, backlog=_BACKLOG))
                # Accepted connections inherit it. The event loop does not set it on them, and
                # without it an answer in two pieces takes 40 ms.
                sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                if not sockets:
                    raise
    except OSError as error:
        raise ServerAddressError(host, port, error.strerror or str(error)) from error
    return sockets


def _address(settings: ServerSettings, port: int) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{port}"
