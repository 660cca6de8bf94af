"""Multipart bodies: those of a real client, and those that are made to do harm."""

from __future__ import annotations

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidSubmissionError
from penstock.serve.submission.programs.multipart import find_file


def body_of(name: str, data: bytes, fields: dict[str, str] | None = None) -> tuple[bytes, str]:
    """Return the body that a real client sends, and its content type."""
    request = httpx2.Request("POST", "http://x/", files={"jarfile": (name, data)}, data=fields)
    return request.read(), request.headers["content-type"]


@given(st.binary(max_size=200) | st.from_regex(rb"(\r\n|--|-|\r|\n|a){0,30}", fullmatch=True))
def test_the_file_of_a_real_client_is_found_whatever_it_contains(data: bytes) -> None:
    body, kind = body_of("job.py", data, {"other": "field"})
    part = find_file(body, kind)
    assert (part.name, body[part.begin : part.end]) == ("job.py", data)


@pytest.mark.parametrize("name", ["a b.py", 'a"b.py', "../x.py", "ünï.py", "a\\b.py"])
def test_the_name_is_what_the_client_says_and_is_judged_later(name: str) -> None:
    body, kind = body_of(name, b"")
    assert find_file(body, kind).name


def test_a_line_that_only_begins_like_the_boundary_ends_no_part() -> None:
    data = b"x\r\n--aba\r\n--ab: y"
    body = b'--ab\r\nContent-Disposition: form-data; filename="a.py"\r\n\r\n%b\r\n--ab--' % data
    part = find_file(body, "multipart/form-data; boundary=ab")
    assert body[part.begin : part.end] == data


PART = b'Content-Disposition: form-data; name="jarfile"; filename="a.py"\r\n\r\nx\r\n'
KIND = "multipart/form-data; boundary=ab"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", KIND),
        (b"--ab--", KIND),
        (b"--ab\r\n" + PART, KIND),
        (b"--ab\r\n" + PART + b"--a", KIND),
        (b"--ab\r\n" + PART + b"--ab\r\n" + PART + b"--ab--", KIND),
        (b"--ab\r\n" + PART.replace(b"filename", b"title") + b"--ab--", KIND),
        (b"--ab\r\nX: " + b"y" * 10_000 + b"\r\n" + PART + b"--ab--", KIND),
        (b"--ab\r\nX: \xff\r\n" + PART + b"--ab--", KIND),
        (b"--ab\r\n" + b"X: y\r\n\r\n\r\n--ab\r\n" * 100 + b"--ab--", KIND),
        (b"--ab\r\n" + PART + b"--ab--", "multipart/form-data"),
        (b"--ab\r\n" + PART + b"--ab--", "multipart/form-data; boundary="),
        (b"--ab\r\n" + PART + b"--ab--", "multipart/form-data; boundary=" + "a" * 100),
        (b"--ab\r\n" + PART + b"--ab--", "multipart/mixed; boundary=ab"),
        (b"--ab\r\n" + PART + b"--ab--", "application/json"),
        (b"--ab\r\n" + PART + b"--ab--", ""),
        (b"--ab\r\n" + PART + b"--ab--", "multipart/form-data; boundary=\xfc"),
    ],
)
def test_a_malformed_body_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(InvalidSubmissionError):
        find_file(body, kind)


@given(st.binary(max_size=300), st.text(max_size=80))
def test_any_other_body_is_refused_and_nothing_else_happens(body: bytes, kind: str) -> None:
    for content_type in (kind, KIND):
        try:
            part = find_file(b"--ab\r\n" + PART[:30] + body + b"\r\n--ab--", content_type)
            assert 0 <= part.begin <= part.end
        except InvalidSubmissionError:
            pass
