"""The web application: all calls, the dashboard's files, and what guards them."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from penstock.redaction import redact
from penstock.serve.context import ServerContext, ServerSettings
from penstock.serve.dashboard import endpoints as dashboard
from penstock.serve.event_streams import events
from penstock.serve.events import EventHub
from penstock.serve.http.answers import RestError, answer, error_answer
from penstock.serve.http.calls import Endpoint, handler_of
from penstock.serve.http.guard import Guard
from penstock.serve.http.openapi import openapi, page
from penstock.serve.jobs.catalog import JobCatalog
from penstock.serve.jobs.live import LiveWatch
from penstock.serve.prometheus.scrape import ENDPOINT as prometheus
from penstock.serve.queryable.latest import LatestStates
from penstock.serve.queryable.lookups import StateLookups
from penstock.serve.queryable.readers import StateReaders
from penstock.serve.rest.catalogue import OWN, SUPPORTED, UNSUPPORTED
from penstock.serve.submission.submissions import Submissions
from penstock.serve.submission.uploads import OVERHEAD_BYTES, UPLOAD_PATH

LASTING: tuple[Endpoint, ...] = (*SUPPORTED, *OWN, *UNSUPPORTED)
ENDPOINTS: tuple[Endpoint, ...] = (*LASTING, *dashboard.ENDPOINTS)
"""All calls of the API; each has its path, and the same one below `/v1`."""

WEB = Path(str(files("penstock.serve"))) / "web"
"""The dashboard's files."""
_THREADS = 32
_VERSION = "/v1"
_OPERATORS = re.compile(
    f"({_VERSION})?("
    + "|".join(re.sub(":[a-z]+", "[^/]+", e.path) for e in ENDPOINTS if e.only_operators)
    + ")"
)


def context_of(settings: ServerSettings) -> ServerContext:
    """Return the parts of a server with these settings."""
    catalog = JobCatalog(settings.directory, settings.heartbeat_timeout_s, settings.storage_options)
    submissions = None
    if settings.submission is not None:
        submissions = Submissions(settings.submission)
        submissions.recover()
    latest = LatestStates(settings.heartbeat_timeout_s)
    lookups = StateLookups(StateReaders(catalog), latest)
    return ServerContext(
        settings, catalog, LiveWatch(), EventHub(), lookups, submissions=submissions
    )


def create_app(context: ServerContext) -> Starlette:
    """Return the application."""
    limiters: list[CapacityLimiter] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        context.lookups.close()
        context.jobs.close()
        if context.submissions is not None:
            context.submissions.close()

    def threads() -> CapacityLimiter:
        # It belongs to the event loop, which does not run yet.
        if not limiters:
            limiters.append(CapacityLimiter(_THREADS))
        return limiters[0]

    async def stream(request: Request) -> Response:
        return await events(request, context)

    # The dashboard's own calls may change with its pages.
    description = openapi(LASTING)

    async def described(request: Request) -> Response:
        return answer(description)

    async def described_page(request: Request) -> Response:
        return HTMLResponse(page(description))

    async def dashboard(request: Request) -> Response:
        return FileResponse(WEB / "index.html")

    routes: list[BaseRoute] = [
        Route("/openapi.json", described, methods=["GET"]),
        Route("/docs", described_page, methods=["GET"]),
        Route(prometheus.path, handler_of(prometheus, context, threads), methods=["GET"]),
    ]
    for prefix in (_VERSION, ""):
        routes.append(Route(f"{prefix}/events", stream, methods=["GET"]))
        routes += [
            Route(f"{prefix}{e.route}", handler_of(e, context, threads), methods=[e.method])
            for e in in_order(ENDPOINTS)
        ]
    # Directories are not served, so that nothing leads elsewhere.
    routes.append(Route("/", dashboard, methods=["GET"]))
    routes.append(Mount("/", StaticFiles(directory=WEB)))
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(
                Guard,
                hosts=hosts_of(context.settings),
                tokens=context.settings.tokens,
                public_paths=public_paths(),
                longest_bodies=longest_bodies(context.settings),
                is_for_operators=is_for_operators,
            )
        ],
        lifespan=lifespan,
        exception_handlers={
            RestError: _rest_error,
            HTTPException: _http_error,
            OSError: _unreachable,
            Exception: _defect,
        },
    )
    # Every call has one path: nothing is redirected.
    app.router.redirect_slashes = False
    return app


def public_paths() -> set[str]:
    """Return the paths of what says nothing of jobs: the dashboard's files and descriptions."""
    found = (path for path in WEB.rglob("*") if path.is_file())
    return {
        "/",
        "/docs",
        "/openapi.json",
        *(f"/{path.relative_to(WEB).as_posix()}" for path in found),
    }


def hosts_of(settings: ServerSettings) -> set[str]:
    """Return the names under which the server is reached."""
    return {"localhost", settings.host, socket.gethostname(), *settings.allowed_hosts}


def longest_bodies(settings: ServerSettings) -> dict[str, int]:
    """Return the longest bodies of the calls that take more than the others, by path."""
    if settings.submission is None:
        return {}
    longest = settings.submission.max_program_bytes + OVERHEAD_BYTES
    return {f"{prefix}{UPLOAD_PATH}": longest for prefix in (_VERSION, "")}


def is_for_operators(path: str) -> bool:
    """Whether a path begins like one that only operators may read."""
    return _OPERATORS.match(path) is not None


def in_order(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Return endpoints so that `/jobs/overview` comes before `/jobs/:jobid`."""
    return sorted(endpoints, key=lambda e: [(n.startswith(":"), n) for n in e.path.split("/")])


async def _rest_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    return error_answer(error.status, redact(error.message))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = None
    if error.status_code == 404:
        message = f"Not found: {request.url.path}"
    return error_answer(error.status_code, message, dict(error.headers or {}))


async def _unreachable(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    reason = error.strerror or type(error).__name__
    return error_answer(503, redact(f"{error.filename or 'The storage'} cannot be read: {reason}"))


async def _defect(request: Request, error: Exception) -> Response:
    return error_answer(500, f"Internal server error: {type(error).__name__}")
