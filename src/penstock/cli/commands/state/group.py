"""`penstock state`: the state in checkpoints and savepoints."""

from __future__ import annotations

import click


@click.group("state")
def state_commands() -> None:
    """Read the state in checkpoints and savepoints."""


COMMANDS: tuple[click.Command, ...] = ()
"""Its subcommands, each in a module of its own."""

for command in COMMANDS:
    state_commands.add_command(command)
