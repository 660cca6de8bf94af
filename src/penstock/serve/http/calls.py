"""The calls that the server answers: what a call is declared as, and what a function gets of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from penstock.common.text.tolerant_json import decode_json
from penstock.serve.http.answers import RestError, answer
from penstock.serve.http.bodies import body_of
from penstock.serve.http.tokens import Role

if TYPE_CHECKING:
    from penstock.serve.context import ServerContext

T = TypeVar("T")

NOT_SUPPORTED = 501


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its path, its query and its body."""

    context: ServerContext
    path: dict[str, str]
    """The parameters in the path, by name."""
    query: dict[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = ""
    request: Request | None = None
    """The request itself; its body is unread if the function of the call is a coroutine."""

    @property
    def role(self) -> Role:
        """What the caller may do."""
        tokens = self.context.settings.tokens
        if tokens is None:
            return Role.OPERATOR
        return tokens.role(self.request.headers.get("authorization") if self.request else None)

    def flag(self, name: str) -> str | None:
        """Return a parameter of the query, None if it is not there."""
        values = self.query.get(name)
        return values[-1] if values else None

    def names(self, name: str) -> list[str] | None:
        """Return a parameter of the query that is a list with commas; None if it is not there."""
        values = self.query.get(name)
        return None if values is None else [n for value in values for n in value.split(",") if n]

    def json(self, kind: type[T]) -> T:
        """Return the body; an empty one is an empty object.

        Raises:
            RestError: it is not JSON, or not what the call takes.
        """
        try:
            return decode_json(self.body.strip() or b"{}", kind)
        except msgspec.DecodeError as error:
            raise RestError(400, f"Bad request received: {error}") from error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One call of the API; `function` returns a response or a value for JSON.

    It may block. Only a coroutine must not: it runs in the event loop, and reads the body itself.
    """

    method: str
    path: str
    """With parameters as Flink writes them: `/jobs/:jobid`; the last may contain slashes: `:x*`."""
    function: Callable[[Call], object]
    summary: str
    status: int = 200
    query: tuple[str, ...] = ()
    body: type | None = None
    """The struct that the body is decoded to."""
    only_operators: bool = False
    """Whether only operators may make the call although it changes nothing."""

    @property
    def route(self) -> str:
        """The path in the form of the router."""
        names = self.path.replace("*", ":path").split("/")
        return "/".join(f"{{{name[1:]}}}" if name.startswith(":") else name for name in names)

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return self.route.replace(":path}", "}")

    @property
    def is_supported(self) -> bool:
        """Whether it does what it says."""
        return self.status != NOT_SUPPORTED

    @property
    def is_change(self) -> bool:
        """Whether the call changes something, so that only operators may make it."""
        return self.only_operators or self.method not in ("GET", "HEAD")


def handler_of(
    endpoint: Endpoint, context: ServerContext, threads: Callable[[], CapacityLimiter]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that the router calls: it runs the endpoint's in a thread."""

    async def handle(request: Request) -> Response:
        query: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            query.setdefault(name, []).append(value)
        reads_itself = iscoroutinefunction(endpoint.function)
        call = Call(
            context,
            {name: str(value) for name, value in request.path_params.items()},
            query,
            await body_of(request) if endpoint.is_change and not reads_itself else b"",
            request.headers.get("content-type", ""),
            request,
        )
        if reads_itself:
            result = endpoint.function(call)
        else:
            result = await to_thread.run_sync(endpoint.function, call, limiter=threads())
        if isawaitable(result):
            result = await result
        return result if isinstance(result, Response) else answer(result, endpoint.status)

    return handle
