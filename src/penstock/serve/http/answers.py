"""Answers of the server: JSON as Flink writes it, and errors in Flink's form."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from penstock.common.text.tolerant_json import encode_json, representable

JSON = "application/json; charset=UTF-8"


class RestError(Exception):
    """A call that is answered with an error; the message is shown to the caller."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def answer(value: object, status: int = 200) -> Response:
    """Return a value as JSON."""
    return Response(encode_json(value), status, media_type=JSON)


def error_answer(
    status: int, message: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """Return an error in Flink's form; without a message, with the standard one of the status."""
    text = representable(message or HTTPStatus(status).phrase)
    return Response(encode_json({"errors": [text]}), status, headers, media_type=JSON)
