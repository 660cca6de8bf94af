"""`penstock state`: the state in checkpoints and savepoints."""

from __future__ import annotations

import click

from penstock.cli.commands.state.diff import diff
from penstock.cli.commands.state.export import export
from penstock.cli.commands.state.get import get
from penstock.cli.commands.state.show import show


@click.group("state")
def state_commands() -> None:
    """Read the state in checkpoints and savepoints."""


COMMANDS: tuple[click.Command, ...] = (show, get, diff, export)
"""Its subcommands, each in a module of its own."""

for command in COMMANDS:
    state_commands.add_command(command)
