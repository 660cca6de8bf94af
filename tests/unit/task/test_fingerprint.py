"""Two failures have one fingerprint if step, exception, line and record are the same."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from penstock.task.fingerprint import failure_fingerprint, program_line


class OperationalError(Exception):
    """A database's, which is no OSError."""


class Opaque:
    """A record whose repr has an address."""

    def __init__(self, number: int) -> None:
        self.number = number


def parse(text: str) -> int:
    return int(text)


def decode(text: str) -> Any:
    return json.loads(text)


def divide(number: int) -> float:
    return 1 / number


def raises(error: BaseException) -> Callable[[Any], Any]:
    def function(_: Any) -> None:
        raise error

    return function


def print_of(function: Callable[[Any], Any], record: Any, step: str = "parse") -> str:
    try:
        function(record)
    except BaseException as error:
        return failure_fingerprint(step, record, error)
    message = "it did not fail"
    raise AssertionError(message)


@pytest.mark.parametrize("record", ["x", "\ud800", "x" * 100_000, "é"])
def test_the_same_failure_has_the_same_fingerprint(record: str) -> None:
    assert print_of(parse, record) == print_of(parse, record) != ""


def test_step_exception_line_and_record_make_the_difference() -> None:
    first = print_of(parse, "x")
    others = [
        print_of(parse, "y"),
        print_of(parse, "x", step="other"),
        print_of(raises(ValueError("x")), "x"),
        print_of(raises(KeyError("x")), "x"),
    ]
    assert len({first, *others}) == 5
    assert print_of(parse, "x" * 100_000 + "a") != print_of(parse, "x" * 100_000 + "b")


def test_what_an_exception_says_makes_no_difference() -> None:
    assert print_of(raises(ValueError("at 12:00")), 1) == print_of(raises(ValueError("12:01")), 1)


def test_a_record_without_a_repr_of_its_own_is_compared_by_its_content() -> None:
    failing = raises(ValueError("no"))
    assert print_of(failing, Opaque(1)) == print_of(failing, Opaque(1))
    assert print_of(failing, Opaque(1)) != print_of(failing, Opaque(2))


def test_a_record_that_can_be_neither_shown_nor_pickled_still_has_a_fingerprint() -> None:
    assert print_of(raises(ValueError("no")), lambda: None) != ""


@pytest.mark.parametrize(
    "outage",
    [
        ConnectionRefusedError("no"),
        TimeoutError("late"),
        socket.gaierror("no such host"),
        OSError(28, "No space left on device"),
        OperationalError("server closed the connection"),
        MemoryError(),
        EOFError(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_outage_has_none(outage: BaseException) -> None:
    assert print_of(raises(outage), 1) == ""
    caused = RuntimeError("503")
    caused.__cause__ = outage
    assert print_of(raises(caused), 1) == ""
    handled = RuntimeError("503")
    handled.__context__ = outage
    handled.__context__.__context__ = handled
    assert print_of(raises(handled), 1) == ""


def test_the_line_is_the_innermost_one_of_the_program() -> None:
    with pytest.raises(json.JSONDecodeError) as undecodable:
        decode("{")
    assert program_line(undecodable.value) == f"{__file__}:{decode.__code__.co_firstlineno + 1}"
    with pytest.raises(ZeroDivisionError) as caught:
        divide(0)
    assert program_line(caught.value) == f"{__file__}:{divide.__code__.co_firstlineno + 1}"
