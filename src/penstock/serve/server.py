"""Runs the server: listens until it is interrupted."""

from __future__ import annotations

import time

import uvicorn

from penstock.serve.application import context_of, create_app
from penstock.serve.context import ServerSettings

_GRACE_S = 2
_MOST_CONNECTIONS = 400
"""Far below what a process may open: further callers get 503."""


def serve(settings: ServerSettings) -> None:
    """Look at the jobs once, then answer calls until SIGINT or SIGTERM."""
    context = context_of(settings)
    began = time.monotonic()
    jobs = context.jobs.jobs()
    took = time.monotonic() - began
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.tls_cert is None else "https"
    address = f"{scheme}://{host}:{settings.port}"
    print(
        f"{address} shows {len(jobs)} jobs in {settings.directory} (read in {took:.1f} s)",
        flush=True,
    )
    config = uvicorn.Config(
        create_app(context),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        # Nobody says on behalf of others where a request comes from.
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = uvicorn.Server(config)
    context.events.is_ending = lambda: server.should_exit
    server.run()
