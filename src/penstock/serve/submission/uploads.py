"""`POST /jars/upload`: stores a program that arrives in a multipart body."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

from anyio import to_thread
from starlette.requests import Request

from penstock.errors import ProgramTooLargeError, SubmissionError
from penstock.serve.http.answers import RestError
from penstock.serve.http.bodies import pieces_of
from penstock.serve.http.calls import Call
from penstock.serve.submission.calls.rest_errors import rest_error, submissions_of
from penstock.serve.submission.programs.multipart import find_file
from penstock.serve.submission.programs.store import STAGED, Program, ProgramStore

OVERHEAD_BYTES = 1 << 16
"""What a multipart body may have besides the program."""
UPLOAD_PATH = "/jars/upload"
_UPLOADS_AT_ONCE = 4
_PIECE_BYTES = 1 << 16


_open = threading.BoundedSemaphore(_UPLOADS_AT_ONCE)
"""Uploads that go on: each takes space on disk before it can be refused."""


async def upload(call: Call) -> dict[str, str]:
    """Store the program in the body of a request.

    Raises:
        RestError: it is refused.
    """
    programs = submissions_of(call).programs
    assert call.request is not None
    if not _open.acquire(blocking=False):
        raise RestError(503, "Too many programs are being uploaded; try again later")
    try:
        program = await _receive(call.request, programs)
    except SubmissionError as error:
        raise rest_error(error) from error
    finally:
        _open.release()
    return {"filename": f"programs/{program.id}", "status": "success"}


async def _receive(request: Request, programs: ProgramStore) -> Program:
    left = programs.max_bytes + OVERHEAD_BYTES
    with tempfile.TemporaryFile(dir=programs.scratch, prefix=STAGED) as body:
        async for piece in pieces_of(request):
            left -= len(piece)
            if left < 0:
                raise ProgramTooLargeError(programs.max_bytes)
            body.write(piece)
        body.flush()
        content_type = request.headers.get("content-type", "")
        return await to_thread.run_sync(_store, programs, body, content_type)


def _store(programs: ProgramStore, body: IO[bytes], content_type: str) -> Program:
    if os.fstat(body.fileno()).st_size == 0:
        find_file(b"", content_type)
    with mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ) as data:
        part = find_file(data, content_type)

        def pieces() -> Iterator[bytes]:
            for begin in range(part.begin, part.end, _PIECE_BYTES):
                yield data[begin : min(part.end, begin + _PIECE_BYTES)]

        return programs.add(part.name, pieces())
