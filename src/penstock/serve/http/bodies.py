"""Reads the bodies of requests from clients that may stall or go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request

from penstock.serve.http.answers import RestError

PIECE_TIMEOUT_S = 30.0
"""How long a client may take to send the next piece of a body."""


async def pieces_of(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body.

    Raises:
        RestError: the client has sent nothing for too long, or is gone.
    """
    async with aclosing(_stream(request)) as stream:
        while True:
            try:
                piece = await asyncio.wait_for(anext(stream, None), PIECE_TIMEOUT_S)
            except TimeoutError as error:
                message = f"Nothing of the body has arrived for {PIECE_TIMEOUT_S:.0f} s"
                raise RestError(408, message) from error
            except ClientDisconnect as error:
                raise RestError(400, "The client has closed the connection") from error
            if piece is None:
                return
            yield piece


async def body_of(request: Request) -> bytes:
    """Return a whole body, which the guard has limited; raises like `pieces_of`."""
    try:
        async with asyncio.timeout(PIECE_TIMEOUT_S):
            return b"".join([piece async for piece in pieces_of(request)])
    except TimeoutError as error:
        message = f"The body has not arrived within {PIECE_TIMEOUT_S:.0f} s"
        raise RestError(408, message) from error


async def _stream(request: Request) -> AsyncGenerator[bytes, None]:
    async for piece in request.stream():
        yield piece
