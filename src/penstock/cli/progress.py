"""A line on the terminal that says what a command is doing; nothing if stderr is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

from penstock.cli.output import duration
from penstock.common.text.tolerant_json import representable

_SHOW_EVERY_S = 0.5


class Progress:
    """Shows what is read now and how long it has taken, from half a second on."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()
        self._is_shown = False

    def show(self, what: str) -> None:
        """Replace the line, at most twice per second."""
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._shown >= _SHOW_EVERY_S:
            self._shown, self._is_shown = now, True
            line = f"reading {representable(what)}: {duration(now - self._began)}"
            click.echo(f"\r\033[K{line}", err=True, nl=False)

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._is_shown = False
            click.echo("\r\033[K", err=True, nl=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
