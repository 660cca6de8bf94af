"""Connections and bodies of clients that stall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from penstock.serve.application import context_of, create_app
from penstock.serve.context import ServerSettings
from penstock.serve.http import bodies
from penstock.serve.http.answers import answer
from penstock.serve.http.connections import Connection
from penstock.serve.submission.settings import SubmissionSettings

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Impatient(Connection):
    head_timeout_s = 0.3
    most_connections = 3


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.sleep(0.6 if scope["path"] == "/slow" else 0)
    await answer("hello")(scope, receive, send)


@asynccontextmanager
async def listening(app: ASGIApp = hello) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    config = uvicorn.Config(app, http=Impatient, ws="none", log_level="warning", lifespan="off")
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Impatient(config, state, {}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port)
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()


async def answered(streams: Streams, request: bytes = GET) -> bytes:
    reader, writer = streams
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    if b"content-length: 7" in head:
        await reader.readexactly(7)
    return head.split()[1]


async def end_of(streams: Streams) -> float:
    """Return after how long a connection was closed."""
    began = time.monotonic()
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(streams[0].read(), 10) == b""
    return time.monotonic() - began


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_without_a_complete_head_is_closed(sent: bytes) -> None:
    async def run() -> None:
        async with listening() as connect:
            streams = await connect()
            streams[1].write(sent)
            assert await end_of(streams) < 5

    asyncio.run(run())


def test_also_one_that_sends_a_byte_now_and_then_or_has_sent_a_request_before() -> None:
    async def run() -> None:
        async with listening() as connect:
            streams = await connect()
            assert await answered(streams) == b"200"
            closed = asyncio.create_task(end_of(streams))
            for byte in GET[:-2]:
                if closed.done():
                    break
                streams[1].write(bytes([byte]))
                await asyncio.sleep(0.05)
            assert await closed < 1.5

    asyncio.run(run())


def test_a_slow_answer_and_pipelined_requests_are_not_hurried() -> None:
    async def run() -> None:
        async with listening() as connect:
            streams = await connect()
            slow = GET.replace(b"GET /", b"GET /slow")
            assert await answered(streams, slow + GET) == b"200"
            assert await answered(streams, b"") == b"200"

    asyncio.run(run())


def test_a_new_connection_replaces_the_oldest_one_without_a_head() -> None:
    async def run() -> None:
        async with listening() as connect:
            idle = [await connect() for _ in range(3)]
            await asyncio.sleep(0.05)
            assert await answered(await connect()) == b"200"
            assert await end_of(idle[0]) < 0.2

    asyncio.run(run())


def test_a_connection_beyond_the_limit_is_answered_in_flinks_form() -> None:
    async def run() -> None:
        async with listening() as connect:
            busy = [await connect() for _ in range(3)]
            for _, writer in busy:
                writer.write(GET.replace(b"GET /", b"GET /slow"))
            await asyncio.sleep(0.1)
            reader, writer = await connect()
            writer.write(GET)
            refused = (await asyncio.wait_for(reader.read(), 10)).lower()
            assert refused.startswith(b"http/1.1 503")
            assert b"x-frame-options" in refused
            assert b"errors" in refused
            for streams in busy:
                assert await answered(streams, b"") == b"200"

    asyncio.run(run())


def test_a_body_that_stalls_ends_and_an_upload_gives_its_place_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PIECE_TIMEOUT_S", 0.3)
    directory = tmp_path / "checkpoints"
    settings = SubmissionSettings(directory, tmp_path / "uploads", 50, 1 << 20, 1 << 20, 3, 60)
    context = context_of(ServerSettings(directory, submission=settings))
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n--a"
    file = b'--a\r\nContent-Disposition: form-data; filename="a.py"\r\n\r\n1\r\n--a--\r\n'
    whole = (
        b"POST /jars/upload HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=a\r\nContent-Length: %d\r\n\r\n"
    ) % len(file)

    async def run(connection: type[Connection] = Impatient) -> None:
        monkeypatch.setattr(connection, "most_connections", 100)
        async with listening(create_app(context)) as connect:
            assert await answered(await connect(), head % b"/jobs/a/stop") == b"408"
            for _ in range(2):
                stalled = [await connect() for _ in range(4)]
                for _, writer in stalled:
                    writer.write(head % b"/jars/upload")
                await asyncio.sleep(0.1)
                assert await answered(await connect(), whole + file) == b"503"
                for streams in stalled[:3]:
                    assert await answered(streams, b"") == b"408"
            # A client that goes away is no defect.
            _, writer = await connect()
            writer.write(head % b"/jars/upload")
            await asyncio.sleep(0.05)
            writer.close()
            await asyncio.sleep(0.1)
            assert await answered(await connect(), whole + file) == b"200"

    asyncio.run(run())
    context.jobs.close()
