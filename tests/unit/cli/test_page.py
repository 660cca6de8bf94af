"""docs/command-line.md matches the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.exit_codes import EXIT_CODES, ExitCode, exit_code_of
from penstock.cli.main import main
from penstock.errors import (
    ConfigurationFileError,
    FencedError,
    JobAlreadyRunningError,
    PenstockError,
    UnknownJobError,
    UnknownOptionError,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"


def commands(group: click.Group, name: str = "penstock") -> Iterator[tuple[str, click.Command]]:
    for part, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {part}")
        else:
            yield f"{name} {part}", command


COMMANDS = dict(commands(main))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_json_option(name: str) -> None:
    assert f"[`{name}" in PAGE.read_text()
    options = {text for p in COMMANDS[name].params for text in p.opts}
    writes_no_facts = ("penstock run", "penstock serve", "penstock state export")
    assert "--json" in options or name in writes_no_facts


def test_every_option_of_run_is_on_the_page() -> None:
    text = PAGE.read_text()
    options = [
        o for p in COMMANDS["penstock run"].params if isinstance(p, click.Option) for o in p.opts
    ]
    assert [o for o in options if f"{o}" not in text and o != "--config"] == []


def test_exit_codes_are_the_same_on_the_page_in_the_help_and_in_the_code() -> None:
    on_page = dict(re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    in_help = dict(re.findall(r"^ +(\d+)  (.*)$", EXIT_CODES, re.MULTILINE))
    assert on_page == in_help
    assert {int(code) for code in on_page} == set(ExitCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobAlreadyRunningError("job", "host", 1, "now"), 3),
        (UnknownOptionError("key"), 2),
        (ConfigurationFileError("path", 1, "reason"), 2),
        (UnknownJobError("dir", "job", ()), 2),
        (FencedError("job", "a1", "a2"), 1),
    ],
)
def test_errors_have_exit_codes(error: PenstockError, code: int) -> None:
    assert exit_code_of(error) == code
